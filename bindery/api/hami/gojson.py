"""JSON in the form of Go's encoding/json, for annotations that HAMi's components compare byte for
byte.

Used by the codecs whose texts are JSON. Go escapes `<`, `>`, `&` and two line separators inside
strings; msgspec's encoder writes the fields of a struct in their order, as Go does.
"""

from typing import Final, TypeVar

import msgspec

from bindery.api.hami.errors import HamiFormatError

T = TypeVar("T")

_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def encode(value: object) -> str:
    """Return `value`, built of msgspec structs, lists and plain values, in Go's form."""
    return msgspec.json.encode(value).decode().translate(_ESCAPES)


def decode_list(text: str, kind: type[T], field: str) -> tuple[T, ...]:
    """Read `text` as a list of `kind`; null is an empty list, as in Go.

    Raises:
        HamiFormatError: `text` is not such a list. The message contains `field`, its name.
    """
    if text.strip() == "null":
        return ()
    return tuple(decode(text, list[kind], field))  # type: ignore[valid-type]  # a type held in a parameter is a valid parameter at run time


def decode(text: str, kind: type[T], field: str) -> T:
    """Read `text` as a `kind`; unknown fields are ignored, as in Go.

    Raises:
        HamiFormatError: `text` does not fit. The message contains `field`, its name.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise HamiFormatError(f"{field}: {error}") from error
