"""What must hold once the last fault is over and everything has had time to come to rest."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bindery.api import gpushare
from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.kube.objects.bindrequests import BindRequest
from bindery.kube.objects.budgets import DISRUPTION_BUDGETS
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.resources import BIND_REQUESTS, POD_GROUPS, PODS
from bindery.kube.objects.storage import CLAIMS
from bindery.kube.objects.watched import Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.cache.observers import WATCHED
from bindery.scheduler.engine import Engine
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.components import scheduler_configuration
from tests.histories.needs.rest import left_over
from tests.histories.needs.room import held_by_engine
from tests.histories.needs.volumes import claim_names
from tests.histories.reading import all_of
from tests.histories.world import NAMESPACE, World
from tests.recounting import ENDED

_BOUND_PHASES: Final = ("Pending", "Running", "Succeeded")


@dataclass(frozen=True)
class Rest:
    """Looks at the stored objects; knows from `world` which gangs people have disturbed."""

    server: ModelApiServer
    world: World

    def problems(self, now_s: Callable[[], float]) -> list[str]:
        """Return what is not as it must be at rest. `now_s`: seconds since the epoch."""
        pods = all_of(self.server, PODS)
        groups = all_of(self.server, POD_GROUPS)
        found = [text for group in groups for text in self._of_gang(group, pods)]
        found += _requests(all_of(self.server, BIND_REQUESTS))
        found += _without_users(pods)
        found += left_over(self.server, self.world.plan, pods, self.world.disturbed)
        return found or self._of_new_engine(now_s)

    def _of_gang(self, group: PodGroup, pods: list[Pod]) -> list[str]:
        name = group.metadata.name
        mine = [pod for pod in pods if _is_in(pod, group)]
        bound = sum(bool(p.spec.node_name) and p.status.phase in _BOUND_PHASES for p in mine)
        if name in self.world.disturbed or not mine:
            return []
        if all(pod.status.phase == "Succeeded" for pod in mine):
            return []  # it has ended, and an eviction that was under way took one of its pods
        minimum = group.spec.min_member
        if 0 < bound < minimum and not self._is_kept(mine) and not self._cannot_go_on(mine):
            return [f"{bound} of {minimum} pods of {name} are bound"]
        return _of_conditions(group, bound, minimum)

    def _is_kept(self, pods: list[Pod]) -> bool:
        """Whether a disruption budget keeps some of `pods`: then the rest of a gang cannot go."""
        return any(
            budget.covers(pod.metadata.namespace, pod.metadata.labels)
            and pod.spec.node_name
            and budget.status.disruptions_allowed < sum(bool(p.spec.node_name) for p in pods)
            for budget in all_of(self.server, DISRUPTION_BUDGETS)
            for pod in pods
        )

    def _cannot_go_on(self, pods: list[Pod]) -> bool:
        """Whether people deleted the claim of a pod that waits, when the others had succeeded."""
        claims = {claim.metadata.name for claim in all_of(self.server, CLAIMS)}
        waiting = [pod for pod in pods if not pod.spec.node_name]
        return all(pod.status.phase == "Succeeded" for pod in pods if pod.spec.node_name) and any(
            name not in claims for pod in waiting for name in claim_names(pod)
        )

    def _of_new_engine(self, now_s: Callable[[], float]) -> list[str]:
        """Return the gangs that a new engine would place now, and the free room that it holds."""
        engine = self._new_engine(now_s)
        unplanned = sorted(
            draft.spec.pod_group.name if draft.spec.pod_group else draft.spec.id
            for draft in engine.cycle()
        )
        if unplanned:
            return [f"a new engine places {name}" for name in unplanned]
        if engine.cluster.promises.jobs:  # room for a gang that it evicts others for
            engine = self._new_engine(now_s)
        return held_by_engine(self.server, self.world.plan, engine)

    def _new_engine(self, now_s: Callable[[], float]) -> Engine:
        """Return an engine that has read all objects, and knows which evictions are refused."""
        engine = Engine(scheduler_configuration(cycle_s=1.0), now_s)
        for resource in (*WATCHED, *engine.watched_resources()):
            for item in all_of(self.server, resource):
                engine.cluster.apply(Change(EventType.ADDED, item, None))
        engine.spare_protected(math.inf)
        return engine


def _is_in(pod: Pod, group: PodGroup) -> bool:
    """Whether a pod names the group, or the group names its controller."""
    meta = pod.metadata
    if meta.annotations.get(POD_GROUP_ANNOTATION) == group.metadata.name:
        return True
    owners = {owner.uid for owner in meta.owner_references}
    return any(member.controller in owners for member in group.spec.members or ())


def _of_conditions(group: PodGroup, bound: int, minimum: int) -> list[str]:
    name = group.metadata.name
    scheduled = next((c for c in group.status.conditions or () if c.type == "Scheduled"), None)
    if scheduled is None:
        return [f"{name} has no condition Scheduled, and {bound} of its pods are bound"]
    if (scheduled.status == "True") != (bound >= max(1, minimum)):
        text = f"Scheduled={scheduled.status} {scheduled.reason}"
        return [f"{name} has {text}, and {bound} of {minimum} pods are bound"]
    if scheduled.status == "False" and not scheduled.message:
        return [f"{name} waits and does not say why"]
    return []


def _requests(stored: list[BindRequest]) -> Iterator[str]:
    """Yield the requests that should be gone: all but the newest announcement of a leader."""
    newest = max((each.spec.fencing_token for each in stored if each.is_fence), default=0)
    for each in stored:
        if not (each.is_fence and each.is_final and each.spec.fencing_token == newest):
            yield f"BindRequest {each.metadata.name} is left"


def _without_users(pods: list[Pod]) -> list[str]:
    """Return the reservations of GPUs that no pod uses."""
    used: Counter[str] = Counter()
    for pod in pods:
        is_here = pod.metadata.namespace == NAMESPACE and pod.spec.node_name
        if is_here and pod.status.phase not in ENDED:
            used.update(gpushare.groups(pod.metadata.labels))
    return [
        f"reservation {pod.metadata.name} of group {group} has no users"
        for pod in pods
        if pod.metadata.namespace == gpushare.RESERVATION_NAMESPACE
        for group in gpushare.groups(pod.metadata.labels)
        if group not in used
    ]
