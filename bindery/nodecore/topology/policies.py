"""The topology manager's policies: which hints count, and whether the result is good enough."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.topology import merge
from bindery.nodecore.topology.hints import Hint, ProviderHints
from bindery.nodecore.topology.numa import NumaInfo
from bindery.nodecore.topology.options import TopologyOptions

NONE: Final = "none"
BEST_EFFORT: Final = "best-effort"
RESTRICTED: Final = "restricted"
SINGLE_NUMA_NODE: Final = "single-numa-node"

NO_OPTIONS: Final = TopologyOptions()


@dataclass(frozen=True)
class Merged:
    """The best hint by a policy, and whether a pod with it may run."""

    hint: Hint
    admit: bool


def merge_hints(
    policy: str,
    numa: NumaInfo,
    providers: Iterable[ProviderHints],
    options: TopologyOptions = NO_OPTIONS,
) -> Merged:
    """Return the best hint by the policy named `policy`, and whether it admits the pod.

    Raises:
        ConfigurationError: there is no such policy.
    """
    check_name(policy)
    return _POLICIES[policy](numa, providers, options)


def check_name(policy: str) -> None:
    """Check that there is a policy of this name; raises ConfigurationError if there is none."""
    if policy not in _POLICIES:
        raise ConfigurationError(f'unknown policy: "{policy}"')


def single_node_only(resources: Iterable[Iterable[Hint]]) -> list[list[Hint]]:
    """Return the preferred hints that name one NUMA node or none, for each resource."""
    return [
        [
            hint
            for hint in hints
            if hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)
        ]
        for hints in resources
    ]


def _none(numa: NumaInfo, providers: Iterable[ProviderHints], options: TopologyOptions) -> Merged:
    del numa, providers, options
    return Merged(Hint(None, preferred=False), admit=True)


def _best_effort(
    numa: NumaInfo, providers: Iterable[ProviderHints], options: TopologyOptions
) -> Merged:
    resources = merge.filtered(providers)
    best = merge.merge(numa, resources, prefer_closest=options.prefer_closest)
    return Merged(best, admit=True)


def _restricted(
    numa: NumaInfo, providers: Iterable[ProviderHints], options: TopologyOptions
) -> Merged:
    best = _best_effort(numa, providers, options).hint
    return Merged(best, admit=best.preferred)


def _single_numa_node(
    numa: NumaInfo, providers: Iterable[ProviderHints], options: TopologyOptions
) -> Merged:
    del options  # distances say nothing about single nodes
    best = merge.merge(numa, single_node_only(merge.filtered(providers)))
    if best.mask == numa.everything:
        best = Hint(None, best.preferred)
    return Merged(best, admit=best.preferred)


_POLICIES: Final[
    Mapping[str, Callable[[NumaInfo, Iterable[ProviderHints], TopologyOptions], Merged]]
] = {
    NONE: _none,
    BEST_EFFORT: _best_effort,
    RESTRICTED: _restricted,
    SINGLE_NUMA_NODE: _single_numa_node,
}
