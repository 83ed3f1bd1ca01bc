"""Options from dataclasses and signatures: read from words and YAML, checked by type, explained by their docstrings.

    known = options_of(train)                          # every option of a command by its dotted name
    given = read(known, ["--lr", "3e-3"], file)        # what was named, in the file or in words: {"lr": 0.003}
    build(train, given)                                # calls it; what was not given takes its default

A command is a function of plain parameters and dataclasses, whose fields are options too. Its parameter `given`, if it
has one, receives what was named.
"""

import ast
import dataclasses
import difflib
import inspect
import shutil
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sympformer.config_checks import NONE, fitted, parse_yaml
from sympformer.errors import InputError

REQUIRED = dataclasses.MISSING
GIVEN = "given"


@dataclasses.dataclass(frozen=True)
class Option:
    """One option. default: REQUIRED where there is none. owner: who explains it, or the text itself.

    group: its own options have names of their own, `data.corpus`: a dataclass, or for a mapping "module:function" of
    the function that knows them, which is asked only when one of them is named.
    """

    kind: Any
    default: Any = None
    owner: Any = None
    group: Any = None

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


def options_of(owner: Any, prefix: str = "") -> dict[str, Option]:
    """Every option of a dataclass or function by its dotted name."""
    found: dict[str, Option] = {}
    for name, kind, default, lazy in _members(owner):
        group = _dataclass_in(kind)
        if group is not None and inspect.isfunction(owner):
            found |= options_of(group)
        else:
            found[prefix + name] = Option(kind, default, owner, group or lazy)
            found |= options_of(group, f"{prefix}{name}.") if group else {}
    return found


def _members(owner: Any) -> Iterator[tuple[str, Any, Any, str | None]]:
    """name, type, default and, for a mapping, who knows its options."""
    hints = get_type_hints(owner)
    if inspect.isfunction(owner):
        for name, parameter in inspect.signature(owner).parameters.items():
            if name != GIVEN:
                yield name, hints[name], REQUIRED if parameter.default is parameter.empty else parameter.default, None
        return
    for field in dataclasses.fields(owner):
        default = field.default if field.default_factory is REQUIRED else field.default_factory()
        yield field.name, hints[field.name], default, field.metadata.get("options")


def places(command: Any, known: Mapping[str, Option], has_configs: bool) -> list[str]:
    """The options that words stand for: those without a default, else the first; none where a config comes first."""
    plain = [(name, default) for name, kind, default, _ in _members(command) if _dataclass_in(kind) is None]
    required = [name for name, default in plain if default is REQUIRED]
    return required or ([] if has_configs else list(known)[:1])


def _dataclass_in(kind: Any) -> Any:
    """The dataclass that a field holds, also where it may be None."""
    return next((part for part in (kind, *get_args(kind)) if dataclasses.is_dataclass(part)), None)


# --- reading


def read(
    known: dict[str, Option], words: Sequence[str], values: Any = None, places: Sequence[str] = ()
) -> dict[str, Any]:
    """What is named, by dotted name: a file's values, and over them `--name value`, `--name=value` or a bare switch.

    places: the options that words without a name stand for, in order; the last takes several if it is a list.
    """
    given: dict[str, Any] = {}
    if not isinstance(values, Mapping | None):
        raise InputError(f"a config must hold named options, got {values!r}")
    for name, value in (values or {}).items():
        _take(given, known, str(name), value, "")
    for name, value in _pairs(known, list(words), places):
        _take(given, known, name, value, "--")
    return given


def _pairs(known: dict[str, Option], words: list[str], places: Sequence[str]) -> Iterator[tuple[str, Any]]:
    loose: list[Any] = []
    while words:
        word, has, value = words.pop(0).partition("=")
        if not word.startswith("--"):
            loose.append(word + has + value)
            continue
        name, followed = word.removeprefix("--"), bool(words) and not words[0].startswith("--")
        if not has and not followed:
            if find(known, name, word).kind is not bool:
                raise InputError(f"{word} needs a value")
            value = "true"
        yield name, value if has or not followed else words.pop(0)
    if places and loose and get_origin(known[places[-1]].kind) is list:
        loose[len(places) - 1 :] = [loose[len(places) - 1 :]]
    if len(loose) > len(places):
        raise InputError(f"unknown word {loose[len(places)]!r}: options are written --name value")
    yield from zip(places, loose, strict=False)


def _take(given: dict[str, Any], known: dict[str, Option], name: str, value: Any, mark: str) -> None:
    """Put a value under its name; one for a whole group takes the place of all that the group has so far."""
    option = find(known, name, f"{mark}{name}")
    above = [name[:i] for i, character in enumerate(name) if character == "."]
    for other in [n for n in given if n.startswith(f"{name}.") or (n in above and not given[n])]:
        del given[other]
    if option.group is not None:
        _take_group(given, known, name, value, mark)
    elif name in known:
        given[name] = fitted(f"{mark}{name}", option.kind, value)
    else:
        entry = next(part for part in above if part in known)
        _put(given.setdefault(entry, {}), name.removeprefix(f"{entry}."), value, f"{mark}{name}")
        given[entry] = fitted(entry, known[entry].kind, given[entry])


def _take_group(given: dict[str, Any], known: dict[str, Option], name: str, value: Any, mark: str) -> None:
    if value in NONE:
        given[name] = None
        return
    named = parse_yaml(value, f"{mark}{name}") if isinstance(value, str) and value[:1] == "{" else value
    if not isinstance(named, Mapping):
        raise InputError(f"{mark}{name} must hold named options, got {value!r}")
    if not named:
        given[name] = {}
    for key, part in named.items():
        _take(given, known, f"{name}.{key}", part, mark)


def _put(values: dict[str, Any], path: str, value: Any, said: str) -> None:
    """A value where its path says, in entries that are there (their names may hold dots) or are made."""
    there = [key for key in values if path == key or path.startswith(f"{key}.")]
    key = max(there, key=len) if there else path.partition(".")[0]
    if path == key:
        values[key] = value
    elif isinstance(inner := values.setdefault(key, {}), dict):
        _put(inner, path.removeprefix(f"{key}."), value, said)
    else:
        raise InputError(f"{said}: {key} is no group of options in the config")


def find(known: dict[str, Option], name: str, said: str) -> Option:
    """The option of a name, or of the mapping that it is an entry of; asks whoever knows the options of a mapping."""
    above = next((n for n, option in known.items() if name.startswith(f"{n}.") and _is_mapping(option)), None)
    if name not in known and above is not None:
        if (lazy := known[above].group) is None:
            return Option(Any)
        known |= {f"{above}.{key}": option for key, option in _asked(lazy).items()}
    if name in known:
        return known[name]
    names = [n for n in known if above is None or n.startswith(f"{above}.")]
    near = difflib.get_close_matches(name, names, n=1) or [n for n in names if n.endswith(f".{name}")]
    lazy = [(n, option.group) for n, option in known.items() if isinstance(option.group, str)]
    near = near or [f"{n}.{name}" for n, group in lazy if name in _asked(group)]
    mark, where = ("--", "") if said.startswith("--") else ("", " in the config")
    raise InputError(f"unknown option {said!r}{where}" + (f": did you mean {mark + near[0]!r}?" if near else ""))


def _asked(lazy: str) -> Mapping[str, Option]:
    """The options of a mapping, from "module:function" of a function that tells type, default and owner of each."""
    module, _, name = lazy.partition(":")
    return {key: Option(*told) for key, told in getattr(import_module(module), name)().items()}


def _is_mapping(option: Option) -> bool:
    return get_origin(_some(option.kind)) is dict


def _some(kind: Any) -> Any:
    """A type without its None."""
    parts = [part for part in get_args(kind) if part is not types.NoneType]
    return parts[0] if len(parts) == 1 and types.NoneType in get_args(kind) else kind


# --- building


def build(owner: Any, given: Mapping[str, Any]) -> Any:
    """The dataclass of what is given; for a function, the result of its call."""
    values: dict[str, Any] = {}
    call = inspect.isfunction(owner)
    for name, kind, default, _ in _members(owner):
        group, below = _dataclass_in(kind), _below(given, name)
        if group is not None and call:
            values[name] = build(group, given)
        elif below:
            values[name] = build(group, below) if group is not None else below
        elif name in given:
            values[name] = build(group, {}) if group is not None and given[name] == {} else given[name]
        elif default is REQUIRED:
            raise InputError(f"{name} is missing: give --{name}, or name it in a config")
    if call and GIVEN in inspect.signature(owner).parameters:
        values[GIVEN] = dict(given)
    return owner(**values)


def _below(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key.removeprefix(f"{name}."): value for key, value in given.items() if key.startswith(f"{name}.")}


# --- help


def page(usage: str, function: Any, known: Mapping[str, Option], about: str = "") -> str:
    """What `--help` prints. usage: the command as one writes it. about: lines on its words."""
    head = (inspect.getdoc(function) or "").partition("\n\nArgs:")[0]
    return "\n\n".join(filter(None, (f"usage: {usage}", head, about, "options:\n" + "\n".join(rows(known)))))


def group_page(known: dict[str, Option], name: str) -> str:
    """The options of a mapping, which only some module knows."""
    inner = {f"{name}.{key}": option for key, option in _asked(known[name].group).items()}
    return f"options of {name}:\n" + "\n".join(rows(inner))


def rows(known: Mapping[str, Option]) -> Iterator[str]:
    """A paragraph for every option."""
    owners = {id(option.owner): option.owner for option in known.values() if not isinstance(option.owner, str)}
    said = {key: _said(owner) for key, owner in owners.items()}
    for name, option in known.items():
        if _dataclass_in(option.kind) is None:
            text = said[id(option.owner)].get(name.rpartition(".")[2], "") if id(option.owner) in said else option.owner
            if isinstance(option.group, str):
                text += f" They are listed by --{name}.help."
            shown = option.default is not None and not option.required and not _is_mapping(option)
            yield row(f"--{name} {_kind(option.kind)}", text + (f" (default: {option.default})" if shown else ""))


def row(head: str, text: str) -> str:
    """A name and what it is, the latter indented."""
    width, indent = shutil.get_terminal_size().columns - 2, " " * 24
    filled = textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return f"  {head}".ljust(24) + filled[24:] if len(head) < 21 else f"  {head}\n{filled}"


def _said(owner: Any) -> dict[str, str]:
    """name -> its explanation: the string below a field, or its lines under `Args:`."""
    said: dict[str, str] = {}
    if inspect.isfunction(owner):
        name = ""
        for line in (inspect.getdoc(owner) or "").partition("Args:\n")[2].splitlines():
            if line[:4].isspace() and line[4:5].strip() and ":" in line:
                name, _, line = line.strip().partition(":")
            said[name] = f"{said.get(name, '')} {line.strip()}".strip()
        return said
    for owner_class in reversed(owner.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(owner_class))).body[0].body  # type: ignore[attr-defined]
        for field, below in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                said[ast.unparse(field.target)] = " ".join(ast.literal_eval(below.value).split())
    return said


def _kind(kind: Any) -> str:
    kind = _some(kind)
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    names = {bool: "{true,false}", int: "INT", float: "FLOAT", str: "TEXT"}
    return names.get(kind, "LIST" if get_origin(kind) is list else "VALUE")
