"""A value held against a type, in one sentence where it does not fit: read from text, or checked as it is."""

import dataclasses
import math
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sympformer.errors import InputError, unknown_name

NONE = ("null", "~", "None", "")
SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
INFINITE = {".inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
WHOLE, NUMBER = re.compile(r"[-+]?\d[\d_]*"), re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def check_names(kind: type[Any], values: object, where: str, what: str | None = None) -> None:
    """Refuse anything but named values of known fields; a wrong name is answered with the nearest.

    where: the config in words. what: how to call one of its options; by default "option of" the config.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where} must hold named options, got {type(values).__name__}")
    known = [field.name for field in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            raise unknown_name(what or f"option of {where}", name, known)


def check_types(config: Any) -> None:
    """Compare every field of a dataclass instance with its annotation."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        fitted(field.name, hints[field.name], getattr(config, field.name), text=False)


def fitted(name: str, kind: Any, value: Any, text: bool = True) -> Any:
    """The value, of the type `kind`. text: strings are what somebody typed, here or in YAML, and are read."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (types.UnionType, Union):
        return _one_of(name, kind, value, text)
    if origin is Literal:
        if not isinstance(value, str) or value not in inner:
            raise unknown_name(name.removeprefix("--"), value, inner)
        return value
    if text and isinstance(value, str):
        value = _read(name, origin, value)
    if origin in (list, tuple) and inner and isinstance(value, (list, tuple)) and (text or isinstance(value, origin)):
        return _items(name, origin, inner, value, text)
    if origin is dict and inner and isinstance(value, dict):
        return {key: fitted(f"{name}.{key}", inner[1], part, text) for key, part in value.items()}
    if origin is Any:
        return plain(value) if text else value
    _check(name, kind, origin, value, text)
    return float(value) if origin is float else value


def plain(value: Any) -> Any:
    """What YAML text means where nobody knows the type: null, true and false, numbers, lists and mappings of them."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if not isinstance(value, str):
        return value
    if value[:1] in ("[", "{"):
        return plain(parse_yaml(value, repr(value)))
    if value in NONE or value in ("true", "false"):
        return None if value in NONE else value == "true"
    return _number(value) if WHOLE.fullmatch(value) or NUMBER.fullmatch(value) or value in INFINITE else value


def parse_yaml(text: str, where: str) -> Any:
    """The content of YAML, every scalar as the text that stands there. where: for what is said of it."""
    import yaml

    try:
        loader = yaml.BaseLoader(text)
        root = loader.get_single_node()
        _check_keys(root, where, set())
        return {} if root is None else loader.construct_document(root)
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{where} is not YAML: {' '.join(str(error).split())}") from error


def _check_keys(node: Any, where: str, seen: set[int]) -> None:
    """Refuse a key that stands twice, where the first would be lost."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((key for i, key in enumerate(keys) if key in keys[:i]), None):
            line = node.start_mark.line + 1
            raise InputError(f"{where} is not usable: {twice!r} stands twice in line {line} and below")
    if isinstance(node, yaml.ScalarNode) and not node.value and node.style is None:
        node.value = "null"  # nothing stands behind the colon
    seen.add(id(node))  # an alias names a node again
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        for part in child if isinstance(child, tuple) else (child,):
            if id(part) not in seen:
                _check_keys(part, where, seen)


def _read(name: str, kind: Any, text: str) -> Any:
    """A text as its type wants it; the text itself where it does not read."""
    if kind is bool:
        return SWITCH.get(text.lower(), text)
    if kind in (int, float):
        number = _number(text, kind)
        if kind is float or isinstance(number, int):
            return number
        return int(number) if isinstance(number, float) and number.is_integer() else text
    if kind is Path:
        return Path(text)
    if kind in (list, tuple, dict) and text.strip()[:1] in ("[", "{"):
        return parse_yaml(text, name)
    return [part.strip() for part in text.split(",") if part.strip()] if kind in (list, tuple) else text


def _number(text: str, least: Any = int) -> int | float | str:
    """The number that a text is, and the text where it is none."""
    for kind in (int, float) if least is int else (float,):
        try:
            return INFINITE[text] if text in INFINITE else kind(text)
        except ValueError:
            pass
    return text


def _one_of(name: str, kind: Any, value: Any, text: bool) -> Any:
    """The first of several types that takes the value."""
    parts = [part for part in get_args(kind) if part is not types.NoneType]
    empty = value is None or (text and isinstance(value, str) and value in NONE[:-1])
    if empty and len(parts) < len(get_args(kind)):
        return None
    if len(parts) == 1:
        return fitted(name, parts[0], value, text)
    for part in parts:
        try:
            return fitted(name, part, value, text)
        except InputError:
            continue
    raise InputError(f"{name} must be {_called(kind)}, got {value!r}")


def _items(name: str, kind: Any, inner: Any, values: Any, text: bool) -> Any:
    kinds = inner if kind is tuple and ... not in inner else inner[:1] * len(values)
    if len(values) != len(kinds):
        raise InputError(f"{name} must be {len(kinds)} numbers, got {values!r}")
    return kind(fitted(name, part, value, text) for part, value in zip(kinds, values, strict=True))


def _check(name: str, kind: Any, origin: Any, value: Any, text: bool) -> None:
    """An integer is a fine float; a truth value is neither."""
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise InputError(f"{name} is a number of more than 63 bits")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{name} holds half of a surrogate pair, which no file can: write the whole character")
    if origin is dict and text and not isinstance(value, dict):
        raise InputError(f"{name} must hold named options, got {value!r}")
    fits = isinstance(value, (int, float) if origin is float else origin)
    if not fits or (isinstance(value, bool) and origin is not bool):
        raise InputError(f"{name} must be {'' if text else 'of type '}{_called(kind)}, got {value!r}")


def _called(kind: Any) -> str:
    """A type in words."""
    if get_origin(kind) in (types.UnionType, Union):
        return " or ".join(_called(part) for part in get_args(kind) if part is not types.NoneType)
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return str(getattr(get_origin(kind) or kind, "__name__", kind))
