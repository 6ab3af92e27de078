"""Policy options as the kubelet's configuration has them: names and texts."""

from bindery.nodecore.errors import ConfigurationError

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def parse_bool(name: str, text: str) -> bool:
    """Return the value of the option `name`.

    Raises:
        ConfigurationError: the text is no boolean.
    """
    if text not in _TRUE | _FALSE:
        raise ConfigurationError(
            f'bad value for option "{name}": strconv.ParseBool: parsing "{text}": invalid syntax'
        )
    return text in _TRUE
