"""Values as Go prints and encodes them, as far as checkpoints need it.

The kubelet's checksums are taken over a printed form of its Go objects (go-spew with `%#v`), and
its files are written by Go's encoding/json. Both forms are reproduced byte for byte.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bindery.nodecore.checkpoints import fnv
from bindery.nodecore.errors import CheckpointError

Json = dict[str, Any]

NIL: Final = "<nil>"

_ESCAPED: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


class DecodeError(CheckpointError):
    """The file is no JSON or its fields have other types."""


def fnv1a(text: str) -> int:
    """Return the 32-bit FNV-1a hash of `text` in UTF-8."""
    return fnv.fnv1a(text.encode())


def struct(*fields: tuple[str, str, str]) -> str:
    """Return a struct: each field is its name, its Go type and its printed value."""
    return "{" + " ".join(f"{name}:({kind}){value}" for name, kind, value in fields) + "}"


def mapping(items: Mapping[Any, str] | None) -> str:
    """Return a map with keys in ascending order; None is Go's nil map."""
    if items is None:
        return NIL
    return "map[" + " ".join(f"{key}:{items[key]}" for key in sorted(items)) + "]"


def sequence(values: Iterable[object] | None) -> str:
    """Return a slice; None is Go's nil slice."""
    if values is None:
        return NIL
    return "[" + " ".join(map(str, values)) + "]"


def to_json(value: object) -> bytes:
    """Return `value` as encoding/json writes it: compact, with the signs of HTML escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED).encode()


def from_json(blob: bytes | str) -> Json:
    """Return the JSON object in `blob`; raises DecodeError if it is none."""
    try:
        text = blob.decode() if isinstance(blob, bytes) else blob
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        is_cut = not error.doc[error.pos :].strip()
        reason = "unexpected end of JSON input" if is_cut else f"invalid character: {error}"
        raise DecodeError(reason) from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"the file is not text: {error}") from error
    except RecursionError as error:
        raise DecodeError("exceeded max depth") from error
    except ValueError as error:
        raise DecodeError(str(error)) from error
    if not isinstance(value, dict):
        raise DecodeError("json: the file is not an object")
    found: Json = _valid(value) if "\\ud" in text.lower() else value
    return found


def field(container: Any, name: str, kind: type, place: str, default: Any) -> Any:
    """Return the field `name`, which Go's decoder finds in any spelling of upper and lower case.

    `place`: the Go struct, for the message.

    Raises:
        DecodeError: the container is no object, or the value has another type.
    """
    if not isinstance(container, dict):
        raise wrong_type(container, place, place)
    found = default
    for key, value in container.items():
        if key.lower() == name.lower():
            found = value
    if found is None:
        return None if kind is dict else default  # a nil map has its own printed form
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise wrong_type(found, f"{place}.{name}", GO_TYPES[kind])
    return found


def items(values: Any, kind: type, path: str) -> tuple[Any, ...]:
    """Return the elements of a list, none for null; each must have the type `kind`.

    Raises:
        DecodeError: the value is no list, or an element has another type.
    """
    if values is None:
        return ()
    if not isinstance(values, list):
        raise wrong_type(values, path, "slice")
    for value in values:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise wrong_type(value, path, GO_TYPES[kind])
    return tuple(values)


def texts(values: Any, path: str) -> dict[str, str]:
    """Return an object whose values are texts; raises DecodeError if it is none."""
    if not isinstance(values, dict):
        raise wrong_type(values, path, "map[string]string")
    items(list(values.values()), str, path)
    return values


def _no_constant(name: str) -> None:
    raise DecodeError(f"invalid character: {name} is no JSON")


def _valid(value: Any) -> Any:
    """Return a value without halves of UTF-16 pairs, which Go replaces."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_valid(one) for one in value]
    if isinstance(value, dict):
        return {_valid(key): _valid(one) for key, one in value.items()}
    return value


GO_TYPES: Final = {str: "string", int: "uint64", dict: "map", list: "slice"}

_JSON_TYPES: Final = {dict: "object", list: "array", str: "string", bool: "bool"}


def wrong_type(value: object, field_path: str, go_type: str) -> DecodeError:
    """Return the error of Go's decoder for a value of the wrong type."""
    found = _JSON_TYPES.get(type(value), "number")
    return DecodeError(
        f"json: cannot unmarshal {found} into Go struct field {field_path} of type {go_type}"
    )
