"""Reduces the picture of a cluster to what a person may see, before any page is made.

What the person may not list is left out, or stands as None where its place counts: in the order of
waiting gangs, on a node, as the gang that room is kept for. Texts are reduced by their form, never
by whether a hidden name exists: otherwise a person could find out by naming it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from bindery.answers.evictions import GangEviction
from bindery.answers.ownqueues import RULES
from bindery.api import quantity
from bindery.api.names import GPU_RESOURCE
from bindery.dashboard.facts import GangFact, NextStep, NodeFact, Picture, PodOnNode, RoomPromise
from bindery.dashboard.past import (
    HistoryReader,
    PastEviction,
    PastPlan,
    PastWait,
    QueuePoint,
)
from bindery.dashboard.rights import Rights
from bindery.kube.objects.podgroups import GangQueue, PodGroup
from bindery.kube.objects.watched import Condition, Pod
from bindery.scheduler.insight.shares import QueueShare, ResourceShare
from bindery.scheduler.model.jobs import JobKey

OTHERS: Final = "others"
"""What stands in a text in place of an object that must not be named."""
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME: Final = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"
_PAIR: Final = re.compile(rf"(?<![\w./-])({_LABEL})/({_NAME})(?!\w)")
"""A namespace and a name, as in `team-a/train`. A namespace has no dots, unlike the prefix of a
label or a resource such as nvidia.com/gpu."""
_NAMESPACE: Final = re.compile(rf"\b(namespaces?:?) (['\"]?)({_LABEL})(?![\w-])\2")
_NODES: Final = re.compile(rf"\b(on|of) nodes? {_NAME}(?:, {_NAME})*(?: and [0-9]+ more)?")
"""Names of nodes in a message, as in `reserved on nodes a1, a2 and 5 more`."""
_ABSENCE: Final = "no scheduler leads; an administrator can see more"
_KINDS: Final = frozenset({"pod", "pg", "queue", "br"})
"""What stands before the name of an object in place of its namespace."""


def shown_to(picture: Picture, rights: Rights) -> Picture:
    """Return the part of `picture` that a person with `rights` may see."""
    if rights.see_all:
        return picture
    gangs = tuple(_gang(each, rights) for each in picture.gangs if rights.sees(each.key.namespace))
    return replace(
        picture,
        gangs=gangs,
        nodes=tuple(_node(each, rights) for each in picture.nodes) if rights.nodes else (),
        queues=(
            tuple(replace(each, problem=reduced(each.problem, rights)) for each in picture.queues)
            if rights.queues
            else tuple(_own_queues(gangs))
        ),
        total=picture.total if rights.queues else {},
        order=tuple(_key(each, rights) for each in picture.order),
        promises=tuple(_promise(each, rights) for each in picture.promises),
        steps=tuple(_step(each, rights) for each in picture.steps),
        notes=picture.notes if rights.namespaces is None else (),
        # The text names the Lease and the pod that held it.
        absence=picture.absence if rights.namespaces is None else picture.absence and _ABSENCE,
        shows_nodes=rights.nodes,
        shows_queues=rights.queues,
        shows_all=rights.namespaces is None,
    )


def reduced(text: str, rights: Rights) -> str:
    """Return `text` without names of nodes and of objects in namespaces that are not for the
    person.
    """
    if not text or (rights.nodes and rights.namespaces is None):
        return text
    if text.endswith("…"):  # cut, perhaps within a name, which has no form any more
        text = f"{text.rpartition(' ')[0]} …"
    if not rights.nodes:
        text = _NODES.sub(r"\1 some nodes", text)
    if rights.namespaces is None:
        return text

    def pair(found: re.Match[str]) -> str:
        is_ratio = found[1].isdigit() and found[2].isdigit()
        is_shown = is_ratio or found[1] in _KINDS or rights.sees(found[1])
        return found[0] if is_shown else OTHERS

    def namespace(found: re.Match[str]) -> str:
        return found[0] if rights.sees(found[3]) else f"{found[1]} of {OTHERS}"

    return _NAMESPACE.sub(namespace, _PAIR.sub(pair, text))


@dataclass(frozen=True)
class SeenHistory:
    """The part of the past that a person may see. Implements `HistoryReader`."""

    past: HistoryReader
    rights: Rights

    @property
    def since(self) -> float | None:
        """The oldest time of which something is kept; None if nothing is."""
        return self.past.since

    def evictions_of(self, gang: JobKey) -> Sequence[PastEviction]:
        """Return the evictions of pods of `gang`, without claimants that must not be named."""
        if not self.rights.sees(gang.namespace):
            return ()
        return [self._eviction(each) for each in self.past.evictions_of(gang)]

    def _eviction(self, found: PastEviction) -> PastEviction:
        claimant = _key(found.claimant, self.rights)
        shows_queue = self.rights.queues or claimant is not None
        return replace(
            found,
            claimant=claimant,
            claimant_queue=found.claimant_queue if shows_queue else "",
            message=reduced(found.message, self.rights),
        )

    def waits(self, gang: JobKey) -> Sequence[PastWait]:
        """Return the times for which `gang` waited, with messages for the person."""
        if not self.rights.sees(gang.namespace):
            return ()
        return [
            replace(each, message=reduced(each.message, self.rights))
            for each in self.past.waits(gang)
        ]

    def plans(self, gang: JobKey) -> Sequence[PastPlan]:
        """Return the plans for `gang`."""
        if not self.rights.sees(gang.namespace):
            return ()
        found = self.past.plans(gang)
        return found if self.rights.nodes else [replace(each, nodes=()) for each in found]

    def queue_trend(self, queue: str, resource: str) -> Sequence[QueuePoint]:
        """Return the amounts of `resource` of `queue` over time, if the person may read queues."""
        return self.past.queue_trend(queue, resource) if self.rights.queues else ()


def _key(key: JobKey | None, rights: Rights) -> JobKey | None:
    return key if key is not None and rights.sees(key.namespace) else None


def _gang(gang: GangFact, rights: Rights) -> GangFact:
    return replace(
        gang,
        message=reduced(gang.message, rights),
        advice=reduced(gang.advice, rights),
        evicted=eviction(gang.evicted, rights) if gang.evicted is not None else None,
        group=_group(gang.group, rights) if gang.group is not None else None,
        pods=tuple(_pod(pod, rights) for pod in gang.pods),
        stages=tuple(
            replace(
                each,
                nodes=each.nodes if rights.nodes else (),
                problem=reduced(each.problem, rights),
            )
            for each in gang.stages
        ),
    )


def _group(group: PodGroup, rights: Rights) -> PodGroup:
    status = msgspec.structs.replace(
        group.status, conditions=_conditions(group.status.conditions, rights)
    )
    return msgspec.structs.replace(group, status=status)


def _pod(pod: Pod, rights: Rights) -> Pod:
    status = pod.status
    if not status.message and not any(each.message for each in status.conditions or ()):
        return pod
    reduced_status = msgspec.structs.replace(
        status,
        message=reduced(status.message, rights),
        conditions=_conditions(status.conditions, rights),
    )
    return msgspec.structs.replace(pod, status=reduced_status)


def _conditions(found: list[Condition] | None, rights: Rights) -> list[Condition]:
    return [
        msgspec.structs.replace(each, message=reduced(each.message, rights)) for each in found or ()
    ]


def eviction(found: GangEviction, rights: Rights) -> GangEviction:
    """Return an eviction without names that the person may not see."""
    return replace(found, message=reduced(found.message, rights))


def _node(node: NodeFact, rights: Rights) -> NodeFact:
    if rights.namespaces is None:
        return node
    return replace(
        node,
        pods=tuple(_pods(node.pods, rights)),
        kept_for=tuple(_key(each, rights) for each in node.kept_for),
    )


def _pods(pods: Iterable[PodOnNode], rights: Rights) -> Iterator[PodOnNode]:
    """Yield the pods that may be named, then one sum of the others for each state."""
    hidden: defaultdict[tuple[str, bool, bool, bool], list[PodOnNode]] = defaultdict(list)
    for pod in pods:
        if pod.gang is not None and rights.sees(pod.gang.namespace):
            yield pod
        else:
            hidden[pod.state, pod.is_shared, pod.is_sick, pod.is_idle].append(pod)
    for (state, is_shared, is_sick, is_idle), found in sorted(hidden.items()):
        count, gpus = sum(each.count for each in found), sum(each.gpus for each in found)
        yield PodOnNode("", None, count, gpus, state, is_shared, is_sick, is_idle)


def _promise(promise: RoomPromise, rights: Rights) -> RoomPromise:
    gang = _key(promise.gang, rights)
    is_own = gang is not None
    return replace(
        promise,
        gang=gang,
        queue=promise.queue if rights.queues or is_own else "",
        stage=promise.stage if is_own else "",
        nodes=promise.nodes if rights.nodes else (),
        problem=reduced(promise.problem, rights) if is_own else "",
    )


def _step(step: NextStep, rights: Rights) -> NextStep:
    return replace(
        step,
        gang=_key(step.gang, rights),
        nodes=step.nodes if rights.nodes else (),
        claimant=_key(step.claimant, rights),
    )


def _own_queues(gangs: Iterable[GangFact]) -> Iterator[QueueShare]:
    """Yield the queues of the person's gangs, with the figures in the status of the gangs."""
    figures: dict[str, GangQueue] = {}
    waiting: Counter[str] = Counter()
    for gang in gangs:
        waiting[gang.queue] += gang.waits
        found = gang.group.status.queue_figures if gang.group is not None else None
        if found is not None:
            figures[found.name] = found
    for name in sorted(waiting):
        yield _own_queue(name, figures.get(name))


def _own_queue(name: str, figures: GangQueue | None) -> QueueShare:
    names = {key for rule in RULES for key in getattr(figures, rule)} if figures else set()
    return QueueShare(
        name=name,
        parent=None,
        depth=0,
        priority=0,
        problem="",
        reclaimable=True,
        running=figures.gangs.running if figures is not None else 0,
        waiting=figures.gangs.pending if figures is not None else 0,
        resources={each: _share(figures, each) for each in sorted(names) if figures is not None},
    )


def _share(figures: GangQueue, resource: str) -> ResourceShare:
    name = GPU_RESOURCE if resource == "gpu" else resource

    def of(rule: str) -> float | None:
        text = getattr(figures, rule).get(resource)
        try:
            return quantity.parse(text, name) / quantity.scale(name) if text is not None else None
        except quantity.QuantityError:
            return None

    unset = 0.0 if resource == "gpu" else None
    return ResourceShare(
        quota=of("quota") if resource in figures.quota else unset,
        weight=0.0,
        fair_share=of("fair_share") or 0.0,
        allocated=of("allocated") or 0.0,
        non_preemptible=0.0,
        requested=of("requested") or 0.0,
        limit=of("limit"),
    )
