"""Which races there are: workloads, and the contenders for each.

Used by `__main__`. A race is named `workload/contender`, such as `gangs/bindery`. The contenders of
a workload take turns, so that their numbers can be compared.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.cluster import MOST_NAMESPACES
from benchmarks.contenders import BareClient, BareWrites, Bindery, Contender, KubeScheduler
from benchmarks.workload import Workload

FEW_NODES: Final = 10
"""`percentageOfNodesToScore` of kube-scheduler's second setting."""
SHARED_PODS: Final = 50
"""Pods in a request of the bare client that shares requests."""
_MIXED: Final = (2, 10, 100)
"""Sizes of gangs beside each other."""

Make = Callable[[], Contender]


def workloads(pods: int, gang_size: int) -> dict[str, Workload]:
    """Return what the contenders race for, by name."""
    return {
        "gangs": Workload(pods, (gang_size,)),
        "gangs-of-2": Workload(pods, (2,)),
        "gangs-of-100": Workload(pods, (100,)),
        "mixed-gangs": Workload(pods, _MIXED),
        "namespaces": Workload(pods, (gang_size,), namespace_count=MOST_NAMESPACES),
        "singles": Workload(pods, ()),
    }


def contenders(profiles: Path | None = None) -> dict[str, Make]:
    """Return who races for what, by name, in the order of a round.

    `profiles`: where Bindery writes profiles if it is to run under cProfile.
    """
    makes: Mapping[str, Make] = {
        "bindery": lambda: Bindery(profiles=profiles),
        "bindery-max-statements-1": lambda: Bindery(max_statements=1),
        "bindery-max-pods-1": lambda: Bindery(max_pods=1),
        "kube-scheduler": KubeScheduler,
        "kube-scheduler-10-percent": lambda: KubeScheduler(FEW_NODES),
        "bare-client": BareClient,
        "bare-client-aiohttp": lambda: BareClient(BareWrites(by_session=True)),
        "bare-client-50-pods": lambda: BareClient(BareWrites(pods_per_request=SHARED_PODS)),
        "bare-client-max-pods-1": lambda: BareClient(BareWrites(max_pods=1)),
        "bindings-alone": lambda: BareClient(BareWrites(with_requests=False)),
    }
    ours = ("bindery", "bindery-max-statements-1")
    bare = ("bare-client", "bare-client-50-pods")
    theirs = ("kube-scheduler", "kube-scheduler-10-percent")
    entries = {
        "gangs": tuple(makes),
        "gangs-of-2": (*ours, *bare),
        "gangs-of-100": (*ours, *bare),
        "mixed-gangs": (*ours, *bare),
        "namespaces": (*ours, *bare),
        "singles": (*ours, *theirs, "bindings-alone"),
    }
    return {
        f"{workload}/{name}": makes[name] for workload, names in entries.items() for name in names
    }
