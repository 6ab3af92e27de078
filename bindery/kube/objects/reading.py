"""Converts JSON in Go's form to structs, and reads the valid parts of an invalid object.

Used by `objects.resources` and all other readers of a cluster's objects. Go writes an empty list or
map as null where the field is not omitted, so null is an empty list or map in every struct. The
first attempt is fast; further attempts run only if the first attempt fails.
"""

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)

_ABSENT: Final = object()
"""Stands for an absent or unreadable value."""


def decode(raw: bytes | msgspec.Raw, decoder: "msgspec.json.Decoder[T]") -> T:
    """Decode JSON; null is an empty list or map.

    Raises:
        msgspec.DecodeError: `raw` is not JSON, or does not fit the decoder's type.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        return convert(msgspec.json.decode(raw), decoder.type)


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """Return decoded JSON as `kind`; null is an empty list or map.

    `strict`: False accepts numbers and booleans as text, too.

    Raises:
        msgspec.ValidationError: `value` does not fit.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError:
        filled = _filled(value, kind)
        return msgspec.convert(filled, kind, strict=strict)


def read_in_part(value: Any, kind: type[StructT], known: StructT | None) -> StructT | None:
    """Return the readable part of `value`, decoded JSON that does not fit `kind`.

    An unreadable field gets the value of the field in `known`, the last readable version, or is
    left out. None: a required field is missing.
    """
    found = _part(_filled(value, kind), kind, _ABSENT if known is None else known)
    return found if isinstance(found, kind) else None


def _filled(value: Any, hint: Any) -> Any:
    """Return `value` with an empty list or map for each null in the place of a list or map."""
    hint, admits_null = _inner(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if value is None:
        return _EMPTY[origin]() if origin in _EMPTY and not admits_null else None
    if hint is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(value))
    if isinstance(value, list) and origin in (list, tuple):
        return [_filled(each, arguments[0]) for each in value]
    if isinstance(value, dict) and origin is dict:
        return {key: _filled(each, arguments[1]) for key, each in value.items()}
    if isinstance(value, dict) and _is_struct(hint):
        types = {field.encode_name: field.type for field in _fields(hint)}
        return {key: _filled(each, types.get(key, Any)) for key, each in value.items()}
    return value


def _part(value: Any, hint: Any, known: Any) -> Any:
    """Return the readable part of `value` as `hint`, completed from `known`; or `_ABSENT`."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        hint, _ = _inner(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(value, dict) and _is_struct(hint):
        return _part_of_struct(value, hint, known)
    if isinstance(value, dict) and origin is dict:
        before = known if isinstance(known, dict) else {}
        parts = {
            key: _part(each, arguments[1], before.get(key, _ABSENT)) for key, each in value.items()
        }
        return {key: part for key, part in parts.items() if part is not _ABSENT}
    if isinstance(value, list) and origin in (list, tuple):
        if isinstance(known, origin):
            return known
        found = [_part(each, arguments[0], _ABSENT) for each in value]
        return origin(part for part in found if part is not _ABSENT)
    return known


def _part_of_struct(value: dict[str, Any], kind: Any, known: Any) -> Any:
    before = known if isinstance(known, kind) else _ABSENT
    read: dict[str, Any] = {}
    for field in _fields(kind):
        part = getattr(before, field.name, _ABSENT)
        if field.encode_name in value:
            part = _part(value[field.encode_name], field.type, part)
        elif not field.required:
            continue
        if part is not _ABSENT:
            read[field.name] = part
        elif field.required:
            return before
    return kind(**read)


def _inner(hint: Any) -> tuple[Any, bool]:
    """Return a type without annotations and without None, and whether it allows None."""
    if get_origin(hint) is Annotated:
        return _inner(get_args(hint)[0])
    if get_origin(hint) not in (Union, UnionType):
        return hint, hint is Any
    others = [each for each in get_args(hint) if each is not NoneType]
    admits_null = len(others) < len(get_args(hint))
    return (_inner(others[0])[0] if len(others) == 1 else hint), admits_null


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


_EMPTY: Final[dict[Any, Callable[[], Any]]] = {list: list, tuple: list, dict: dict}
