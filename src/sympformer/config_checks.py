"""A value held against a type, in one sentence where it does not fit: read from text, or checked as it is."""

import dataclasses
import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sympformer.errors import InputError, unknown_name

NONE = ("null", "~", "None")
SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
NUMBERS = {".inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}


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
    """Compare every field of a dataclass instance with its annotation: a value fits that need not be read."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        fit = fitted(name, kind, value)
        if fit not in [value] and "Any" not in repr(kind):  # nan is in a list and not equal; Any has been read before
            raise InputError(f"{name} must be {fit!r}, got {value!r}")


def fitted(name: str, kind: Any, value: Any) -> Any:
    """The value, of the type `kind`; strings are what somebody typed, here or in YAML, and are read."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if isinstance(value, str) and any(character == "\0" or "\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{name} is not UTF-8 text: it holds a character that no file and no name can")
    if origin in (types.UnionType, Union):
        return _one_of(name, kind, value)
    if origin is Literal:
        if not isinstance(value, str) or value not in inner:
            raise unknown_name(name.removeprefix("--"), value, inner)
        return value
    if origin is Any:
        return plain(value)
    if isinstance(value, str):
        value = _read(name, origin, value)
    if origin in (list, tuple) and inner and isinstance(value, list | tuple):
        kinds = inner if origin is tuple and ... not in inner else inner[:1] * len(value)
        if len(value) != len(kinds):
            raise InputError(f"{name} must be {len(kinds)} numbers, got {value!r}")
        return origin(fitted(name, part, one) for part, one in zip(kinds, value, strict=True))
    if origin is dict and inner and isinstance(value, dict):
        return {key: fitted(f"{name}.{key}", inner[1], part) for key, part in value.items()}
    _check(name, kind, origin, value)
    return float(value) if origin is float else value


def plain(value: Any) -> Any:
    """What YAML text means where nobody knows the type: null, true and false, numbers, lists and mappings of them."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if not isinstance(value, str) or not value:
        return value
    if value[0] in "[{":
        return plain(parse_yaml(value, repr(value)))
    if value in NONE or value in ("true", "false"):
        return None if value in NONE else value == "true"
    return _number(value, int) if value[0] in "+-.0123456789" else value


def parse_yaml(text: str, where: str) -> Any:
    """The content of YAML, every scalar as the text that stands there. where: for what is said of it."""
    import yaml

    try:
        loader = yaml.BaseLoader(text)
        root = loader.get_single_node()
        _check_nodes(root, where, set())
        return {} if root is None else loader.construct_document(root)
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{where} is not YAML: {' '.join(str(error).split())}") from error


def _check_nodes(node: Any, where: str, seen: set[int]) -> None:
    """Refuse a key that stands twice, where the first would be lost; say null where nothing stands."""
    import yaml

    seen.add(id(node))  # an alias names a node again
    if isinstance(node, yaml.ScalarNode) and not node.value and node.style is None:
        node.value = "null"
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((key for i, key in enumerate(keys) if key in keys[:i]), None):
            line = node.start_mark.line + 1
            raise InputError(f"{where} is not usable: {twice!r} stands twice in line {line} and below")
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        for part in child if isinstance(child, tuple) else (child,):
            if id(part) not in seen:
                _check_nodes(part, where, seen)


def _read(name: str, kind: Any, text: str) -> Any:
    """A text as its type wants it; the text itself where it does not read."""
    if kind is bool:
        return SWITCH.get(text.lower(), text)
    if kind is int:  # 1e3 is one
        number = _number(text, int)
        whole = not isinstance(number, float) or number.is_integer()
        return int(number) if whole and not isinstance(number, str) else text
    if kind is float:
        return _number(text, float)
    if kind in (list, tuple, dict) and text.strip()[:1] in ("[", "{"):
        return parse_yaml(text, name)
    if kind in (list, tuple):
        return [part.strip() for part in text.split(",") if part.strip()]
    return Path(text) if kind is Path else text


def _number(text: str, least: type[int] | type[float]) -> int | float | str:
    """The number that a text is, and the text where it is none."""
    for kind in dict.fromkeys((least, float)):
        try:
            return NUMBERS[text] if text in NUMBERS else kind(text)
        except ValueError:
            pass
    return text


def _one_of(name: str, kind: Any, value: Any) -> Any:
    """The first of several types that takes the value."""
    parts = [part for part in get_args(kind) if part is not types.NoneType]
    if (value is None or (isinstance(value, str) and value in NONE)) and len(parts) < len(get_args(kind)):
        return None
    if len(parts) == 1:
        return fitted(name, parts[0], value)
    for part in parts:
        try:
            return fitted(name, part, value)
        except InputError:
            continue
    raise InputError(f"{name} must be {_called(kind)}, got {value!r}")


def _check(name: str, kind: Any, origin: Any, value: Any) -> None:
    """An integer is a fine float; a truth value is neither."""
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise InputError(f"{name} is a number of more than 63 bits")
    if origin is dict and not isinstance(value, dict):
        raise InputError(f"{name} must hold named options, got {value!r}")
    fits = isinstance(value, (int, float) if origin is float else origin)
    if not fits or (isinstance(value, bool) and origin is not bool):
        raise InputError(f"{name} must be {_called(kind)}, got {value!r}")


def _called(kind: Any) -> str:
    """A type in words."""
    if get_origin(kind) in (types.UnionType, Union, Literal):
        parts = [part for part in get_args(kind) if part is not types.NoneType]
        return " or ".join(repr(part) if isinstance(part, str) else _called(part) for part in parts)
    return str(getattr(get_origin(kind) or kind, "__name__", kind))
