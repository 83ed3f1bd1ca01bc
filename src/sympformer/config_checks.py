"""Checks that a config's values are of the types its fields say, in one sentence each."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sympformer.errors import InputError, unknown_name


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
        _check(field.name, hints[field.name], getattr(config, field.name))


def _check(name: str, kind: Any, value: object) -> None:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in inner:
            raise unknown_name(name, value, inner)
    elif origin is types.UnionType:
        if value is not None:
            _check(name, next(part for part in inner if part is not types.NoneType), value)
    elif origin is tuple:
        if not isinstance(value, tuple) or len(value) != len(inner):
            raise InputError(f"{name} must be {len(inner)} numbers, got {value!r}")
        for part, item in zip(inner, value, strict=True):
            _check(name, part, item)
    elif isinstance(value, int) and abs(value) >= 1 << 63:
        raise InputError(f"{name} is a number of more than 63 bits")
    elif isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{name} holds half of a surrogate pair, which no file can: write the whole character")
    elif not _fits(origin or kind, value):
        raise InputError(f"{name} must be of type {(origin or kind).__name__}, got {value!r}")


def _fits(kind: type[Any], value: object) -> bool:
    """An integer is a fine float; a truth value is neither."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
