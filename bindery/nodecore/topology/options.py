"""The options of the topology manager."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.options import parse_bool, parse_int

PREFER_CLOSEST: Final = "prefer-closest-numa-nodes"
MAX_ALLOWABLE: Final = "max-allowable-numa-nodes"

DEFAULT_MAX_NODES: Final = 8


@dataclass(frozen=True)
class TopologyOptions:
    """The options of the topology manager.

    Attributes:
        prefer_closest: of sets with as many NUMA nodes, the one with the lowest mean distance wins.
        max_nodes: on machines with more NUMA nodes the topology manager does not start.
    """

    prefer_closest: bool = False
    max_nodes: int = DEFAULT_MAX_NODES


def parse(options: Mapping[str, str]) -> TopologyOptions:
    """Return the options that are written in the configuration.

    Raises:
        ConfigurationError: an option is unknown or its value is not allowed.
    """
    prefer_closest, max_nodes = False, DEFAULT_MAX_NODES
    for name, text in options.items():
        if name == PREFER_CLOSEST:
            prefer_closest = parse_bool(name, text)
        elif name == MAX_ALLOWABLE:
            max_nodes = _max_nodes(text)
        else:
            raise ConfigurationError(f'unknown Topology Manager Policy option: "{name}"')
    return TopologyOptions(prefer_closest, max_nodes)


def _max_nodes(text: str) -> int:
    try:
        number = parse_int(text)
    except ValueError as error:
        raise ConfigurationError(
            f'unable to convert policy option to integer "{MAX_ALLOWABLE}": {error}'
        ) from error
    if number < DEFAULT_MAX_NODES:
        raise ConfigurationError(
            f'the minimum value of "{MAX_ALLOWABLE}" should not be less than {DEFAULT_MAX_NODES}'
        )
    return number
