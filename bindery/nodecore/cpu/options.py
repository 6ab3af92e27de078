"""The options of the static CPU policy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.cpu.topology import CpuTopology
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.options import parse_bool
from bindery.nodecore.topology.policies import SINGLE_NUMA_NODE

FULL_PCPUS_ONLY: Final = "full-pcpus-only"
DISTRIBUTE_ACROSS_NUMA: Final = "distribute-cpus-across-numa"
ALIGN_BY_SOCKET: Final = "align-by-socket"
DISTRIBUTE_ACROSS_CORES: Final = "distribute-cpus-across-cores"
STRICT_RESERVATION: Final = "strict-cpu-reservation"
ALIGN_BY_UNCORE: Final = "prefer-align-cpus-by-uncorecache"

_ALPHA: Final = frozenset({ALIGN_BY_SOCKET, DISTRIBUTE_ACROSS_CORES})
_BETA: Final = frozenset({DISTRIBUTE_ACROSS_NUMA})

_FIELDS: Final = {
    FULL_PCPUS_ONLY: "full_pcpus_only",
    DISTRIBUTE_ACROSS_NUMA: "distribute_across_numa",
    ALIGN_BY_SOCKET: "align_by_socket",
    DISTRIBUTE_ACROSS_CORES: "distribute_across_cores",
    STRICT_RESERVATION: "strict_reservation",
    ALIGN_BY_UNCORE: "align_by_uncore",
}

_EXCLUSIVE: Final = (
    (FULL_PCPUS_ONLY, DISTRIBUTE_ACROSS_CORES),
    (DISTRIBUTE_ACROSS_NUMA, DISTRIBUTE_ACROSS_CORES),
    (ALIGN_BY_UNCORE, DISTRIBUTE_ACROSS_CORES),
    (ALIGN_BY_UNCORE, DISTRIBUTE_ACROSS_NUMA),
)


@dataclass(frozen=True)
class CpuOptions:
    """The options of the static policy.

    Attributes:
        full_pcpus_only: only whole cores are given; other requests are refused.
        distribute_across_numa: requests that need several NUMA nodes take equal parts of each.
        align_by_socket: hints are preferred by sockets, not by NUMA nodes.
        distribute_across_cores: CPUs are spread over cores.
        strict_reservation: no container runs on the reserved CPUs.
        align_by_uncore: CPUs that share a last-level cache are preferred.
    """

    full_pcpus_only: bool = False
    distribute_across_numa: bool = False
    align_by_socket: bool = False
    distribute_across_cores: bool = False
    strict_reservation: bool = False
    align_by_uncore: bool = False


NO_OPTIONS: Final = CpuOptions()


def parse(options: Mapping[str, str], features: Features = DEFAULT) -> CpuOptions:
    """Return the options that are written in the configuration.

    Raises:
        ConfigurationError: an option is unknown, not enabled, no boolean, or excludes another.
    """
    values = {}
    for name, text in options.items():
        _check_available(name, features)
        values[name] = parse_bool(name, text)
    for first, second in _EXCLUSIVE:
        if values.get(first) and values.get(second):
            raise ConfigurationError(
                f"static policy options {first} and {second} can not be used at the same time"
            )
    return CpuOptions(**{_FIELDS[name]: value for name, value in values.items()})


def check_machine(options: CpuOptions, topology: CpuTopology, topology_policy: str) -> None:
    """Raise ConfigurationError if the options do not suit machine and topology policy."""
    if not options.align_by_socket:
        return
    if topology_policy == SINGLE_NUMA_NODE:
        raise ConfigurationError(
            f"Topolgy manager {SINGLE_NUMA_NODE} policy is incompatible with CPUManager "
            f"{ALIGN_BY_SOCKET} policy option"
        )
    if topology.num_sockets > topology.num_numa:
        raise ConfigurationError(
            "Align by socket is not compatible with hardware where number of sockets are more "
            "than number of NUMA"
        )


def _check_available(name: str, features: Features) -> None:
    if name not in _FIELDS:
        raise ConfigurationError(f'unknown CPU Manager Policy option: "{name}"')
    is_off = {
        "Alpha": name in _ALPHA and not features.cpu_policy_alpha_options,
        "Beta": name in _BETA and not features.cpu_policy_beta_options,
    }
    for level, off in is_off.items():
        if off:
            raise ConfigurationError(
                f"CPU Manager Policy {level}-level Options not enabled, but option "
                f'"{name}" provided'
            )
