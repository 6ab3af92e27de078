"""Policy options as the kubelet's configuration has them: names and texts."""

import re
from typing import Final

from bindery.nodecore.errors import ConfigurationError

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER: Final = re.compile("[+-]?[0-9]{1,18}")


def parse_bool(name: str, text: str) -> bool:
    """Return the value of the option `name`; raises ConfigurationError for no boolean."""
    if text not in _TRUE | _FALSE:
        raise ConfigurationError(
            f'bad value for option "{name}": strconv.ParseBool: parsing "{text}": invalid syntax'
        )
    return text in _TRUE


def parse_int(text: str) -> int:
    """Return a whole number as Go reads it: no spaces, no underscores, ASCII digits.

    Raises:
        ValueError: the text is none, or has more than 18 digits.
    """
    if not _INTEGER.fullmatch(text):
        raise ValueError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    return int(text)
