"""Read small files that somebody else may have written: regular files only, bounded, and one sentence for all that can
be wrong with them. YAML has no aliases, tags or repeated keys here, and the numbers of YAML 1.2.
"""

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any

from sympformer.errors import InputError

LARGEST, DEEPEST = 1 << 26, 40  # bytes of a JSON or text file; levels of nesting
LARGEST_YAML, MOST_DIGITS = 1 << 20, 300


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """The content of a regular file of at most so many bytes. Raises InputError and, if it cannot be read, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer does not wait
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path} is not a regular file: give one that can be read from beginning to end")
        if found.st_size > largest:
            raise InputError(f"{path} has {found.st_size:,} bytes, where at most {largest:,} make sense")
        return file.read(largest)


def read_text(path: Path, largest: int = LARGEST, what: str = "") -> str:
    """The text of a file. what: how to call it in the sentence that says that it cannot be read."""
    try:
        return read_bytes(path, largest).decode("utf-8")
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(path, error, what) from error


def read_json(path: Path, largest: int = LARGEST) -> dict[str, Any]:
    """The named values in a JSON file."""
    text = read_text(path, largest)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: it is not JSON ({_first_line(error)})") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} is damaged: it must hold named values, got {type(values).__name__}")
    return values


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; an empty one holds no options."""
    import yaml

    try:
        values = parse_yaml(read_text(path, LARGEST_YAML, "the config "))
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    return {} if values is None else values


def parse_yaml(text: str) -> Any:
    """The content of a YAML text. Raises yaml.YAMLError."""
    import yaml

    if len(text) > LARGEST_YAML:
        raise yaml.YAMLError(f"it has {len(text):,} characters, more than {LARGEST_YAML:,}")
    try:
        _check_tokens(text)
        return yaml.load(text, Loader=_loader())
    except (ValueError, OverflowError, RecursionError) as error:  # such as a number of 5,000 digits
        raise yaml.YAMLError(_first_line(error)) from None


def _check_tokens(text: str) -> None:
    """Refuse what can grow without bound, or mean more than it says."""
    import yaml

    refused = {yaml.AliasToken: "an alias (*)", yaml.AnchorToken: "an anchor (&)", yaml.TagToken: "a tag (!)"}
    opening = (yaml.BlockMappingStartToken, yaml.BlockSequenceStartToken)
    flows = (yaml.FlowMappingStartToken, yaml.FlowSequenceStartToken)
    closing = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if type(token) in refused:
            raise yaml.YAMLError(
                f"{refused[type(token)]} in line {token.start_mark.line + 1} is not read: write it out"
            )
        depth += isinstance(token, opening + flows) - isinstance(token, closing)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"line {token.start_mark.line + 1} is nested more than {DEEPEST} levels deep")


@cache
def _loader() -> Any:
    """YAML 1.2's numbers: 3e-4 is one, not a text; 08 is eight; no dates, no numbers with colons."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:bool":  # on, off, yes and no are names in front of a colon
                    key.tag = "tag:yaml.org,2002:str"
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            twice = next((key for i, key in enumerate(keys) if key in keys[:i]), None)
            if twice is not None:
                raise yaml.YAMLError(f"{twice!r} stands twice in line {node.start_mark.line + 1} and below")
            return super().construct_mapping(node, deep)

    number = re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$")
    whole = re.compile(r"^[-+]?\d[\d_]*$")
    plain = tuple(f"tag:yaml.org,2002:{tag}" for tag in ("float", "int", "timestamp", "merge", "value"))
    Loader.yaml_implicit_resolvers = {
        key: [pair for pair in pairs if pair[0] not in plain]
        for key, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for tag, pattern in (("int", whole), ("float", number)):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", pattern, list("-+.0123456789"))
    Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
    return Loader


def _whole_number(loader: Any, node: Any) -> int:
    import yaml

    digits = node.value.replace("_", "")
    if len(digits) > MOST_DIGITS:
        raise yaml.YAMLError(f"line {node.start_mark.line + 1} holds a number of {len(digits)} digits")
    return int(digits)


def check_weights(file: Path, config: dict[str, Any]) -> None:
    """Refuse a config that the weights beside it cannot be of, before anything of its sizes is allocated.

    file: safetensors; its header tells how many tensors and numbers there are.
    """
    tensors, numbers = _header(file)
    layers, width, tables = (
        max((int(config[name]) for name in names if isinstance(config.get(name), int)), default=0)
        for names in (("n_layer", "num_hidden_layers"), ("d_model", "hidden_size", "n_embd"), ("vocab_size",))
    )
    if layers > (tensors if not config.get("share_layers") else 10_000) or width * max(width, tables) > numbers:
        raise InputError(f"the weights in {file} belong to another model than the config beside them")


def _header(file: Path) -> tuple[int, int]:
    """The number of tensors in a safetensors file, and of numbers in them."""
    size = file.stat().st_size
    if not file.is_file():
        raise InputError(f"{file} is not a regular file")
    with file.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        if not 2 <= length <= min(size, LARGEST):
            raise InputError(f"{file} is damaged: it is no safetensors file")
        try:
            header = json.loads(content.read(length))
            shapes = [tensor["shape"] for name, tensor in header.items() if name != "__metadata__"]
            return len(shapes), min(size, sum(math.prod(shape) for shape in shapes))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"{file} is damaged: its header does not read") from error


def check_regular(folder: Path) -> None:
    """Refuse a folder with devices, pipes or broken links in it: others' code is going to read what it finds there."""
    for path in sorted(folder.iterdir()):
        if not path.is_file() and not path.is_dir():
            raise InputError(f"{path} is not a regular file: take a fresh copy of the folder")


def check_files(folder: Path, files: dict[str, str], record: str) -> None:
    """Files of a folder are those that a record in it has the checksums of. Nothing outside the folder is looked at."""
    for name, checksum in files.items():
        file = folder / name
        if Path(name).name != name or name in (".", ".."):
            raise InputError(f"{folder / record} names a file outside its folder, {name!r}: it is not from an export")
        if not file.is_file():
            raise InputError(f"{folder} is not whole: cannot read {name}")
        with file.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != checksum:
                raise InputError(
                    f"{file} has changed since the export: take a fresh copy of the folder, "
                    f"or, if the change is meant, remove {record} beside it"
                )


def sha256(content: bytes) -> str:
    """The checksum of some bytes."""
    return hashlib.sha256(content).hexdigest()


def sealed(values: dict[str, Any], indent: int | None = 1) -> str:
    """Named values as JSON text that carries its own checksum."""
    return json.dumps(values | {"seal": _seal(values)}, indent=indent) + "\n"


def read_sealed(path: Path, largest: int = LARGEST) -> dict[str, Any]:
    """What `sealed` wrote. A file from before there were seals is taken as it is."""
    return unsealed(read_json(path, largest), path)


def unsealed(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Values without their checksum, which must be right."""
    rest = {name: value for name, value in values.items() if name != "seal"}
    if "seal" in values and values["seal"] != _seal(rest):
        raise InputError(f"{path} has changed since it was written: its checksum differs")
    return rest


def _seal(values: dict[str, Any]) -> str:
    plain = json.loads(json.dumps(values))  # as it will be read
    return sha256(json.dumps(plain, sort_keys=True).encode())


def _unreadable(path: Path, error: Exception, what: str) -> InputError:
    if isinstance(error, UnicodeDecodeError):
        return InputError(f"{path} is not UTF-8 text: byte 0x{error.object[error.start]:02x} at offset {error.start}")
    return InputError(f"cannot read {what}{path}: {getattr(error, 'strerror', None) or error}")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:") if lines else type(error).__name__
