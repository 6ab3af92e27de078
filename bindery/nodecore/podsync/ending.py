"""How containers are stopped: their grace periods, and the order of a pod with sidecars.

Source: `setTerminationGracePeriod` and `terminationOrdering` of Kubernetes 1.36.
"""

from collections.abc import Collection, Mapping
from typing import Final

from bindery.nodecore.podsync.actions import KillReason
from bindery.nodecore.podsync.facts import PodRules

LEAST_GRACE_S: Final = 2
"""Every container has this long to end, so that it is not killed without need."""


def grace_s(
    deletion_s: int | None,
    pod_s: int | None,
    reason: KillReason,
    probes_s: Mapping[KillReason, int],
) -> int:
    """Return the grace period of a container in seconds.

    `deletion_s`: of the deletion of its pod, `pod_s`: of the pod. `probes_s`: the probes' own.
    """
    if deletion_s is not None:
        return deletion_s
    if pod_s is None:
        return LEAST_GRACE_S
    return probes_s.get(reason, pod_s)


def ends_after(rules: PodRules, name: str, running: Collection[str]) -> list[str]:
    """Return the running containers that end before `name` gets its signal.

    Sidecars end after the app containers, the last one first.
    """
    sidecars = [one.name for one in rules.init_containers if one.is_sidecar]
    if name not in sidecars:
        return []
    later = sidecars[sidecars.index(name) + 1 :]
    apps = [one.name for one in rules.containers]
    return [one for one in (*apps, *later) if one in running]
