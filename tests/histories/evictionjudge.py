"""Judges evictions: each makes room for a gang that may have it, or ends a broken gang.

The evidence is in the stored objects: before a scheduler evicts, it nominates the pods that get the
room for their nodes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec

from bindery.api.names import (
    CHARGED_PREEMPTIBILITY_ANNOTATION,
    KEPT_ROOM_ANNOTATION,
    POD_GROUP_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    SUB_GROUP_LABEL,
)
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.store import Change, ChangeType
from tests.histories.brokenjudge import BrokenGangs
from tests.histories.budgetjudge import BudgetJudge
from tests.histories.plan import FaultKind, Plan
from tests.histories.sharejudge import ShareJudge
from tests.recounting import ENDED

_MOST: Final = 15
"""How often the pods of one gang may be evicted, for each pod that it has."""
_CLOCKS_S: Final = 12.0
"""By how much two clocks differ, and a moment."""


class EvictionJudge:
    """Knows pods, gangs and priorities from the log."""

    def __init__(self, plan: Plan, shares: ShareJudge) -> None:
        self._shares, self._broken = shares, BrokenGangs(plan)
        self._budgets = BudgetJudge(plan)
        self._min_runtime_s = plan.min_runtime_s
        if any(fault.kind is FaultKind.JUMP for fault in plan.faults):
            self._min_runtime_s = 0.0  # a scheduler cannot know how long a gang has run
        self._whole_s: dict[str, float] = {}
        """UID of each PodGroup -> when its minimum was bound for the first time."""
        self._pods: dict[str, Pod] = {}
        self._groups: dict[str, PodGroup] = {}
        self._priorities: dict[str, int] = {}
        self._priority_range: defaultdict[str, list[int]] = defaultdict(list)
        """PodGroup -> all priorities that it had."""
        self._wanted_s: dict[str, dict[str, float]] = defaultdict(dict)
        """Node -> PodGroup with a pod nominated for it -> when it last was."""
        self._nodes: defaultdict[str, set[str]] = defaultdict(set)
        """PodGroup -> the nodes that its pods were bound to."""
        self.evicted: set[str] = set()
        """UIDs of pods that schedulers have evicted."""
        self._times: Counter[str] = Counter()

    def problems(self, change: Change) -> Iterator[str]:
        """Take in a write; yield what it breaks."""
        match change.kind.plural:
            case "priorityclasses":
                self._priorities[change.key[1]] = change.version.object["value"]
            case "podgroups":
                group = msgspec.json.decode(change.version.body, type=PodGroup)
                self._groups[group.metadata.name] = group
                self._note_priority(group)
                self._note_queue(group, change.at_s)
                self._broken.see_group(group, change)
                self._note_minimum(group.metadata.name, change.at_s)
            case "pods":
                yield from self._pod(change)
                pod = msgspec.json.decode(change.version.body, type=Pod)
                self._shares.see(change, self._queue(self.gang_of(pod)))
            case "poddisruptionbudgets":
                self._budgets.see_budget(change)
            case "queues" | "bindrequests":
                self._shares.see(change, "")

    def _pod(self, change: Change) -> Iterator[str]:
        pod = msgspec.json.decode(change.version.body, type=Pod)
        uid, writer = pod.metadata.uid, change.writer
        is_evicted = writer.subresource == "eviction" and writer.caller.startswith("scheduler")
        if is_evicted and uid not in self.evicted:
            self.evicted.add(uid)
            yield from self._eviction(pod, change)
        self._budgets.see_pod(pod, change.at_s)
        self._note_wanted(self._pods.get(uid), change.at_s)
        if change.type is ChangeType.DELETED:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = pod
            self._note_wanted(pod, change.at_s)
            if pod.spec.node_name:
                self._nodes[self.gang_of(pod)].add(pod.spec.node_name)
                if self._min_runtime_s:
                    self._note_whole(self.gang_of(pod), change.at_s)
        self._note_minimum(self.gang_of(pod), change.at_s, is_eviction=uid in self.evicted)

    def _note_whole(self, name: str, at_s: float) -> None:
        group = self._groups.get(name)
        if group is None or group.metadata.uid in self._whole_s:
            return
        if self._running(name) >= group.spec.min_member:
            self._whole_s[group.metadata.uid] = at_s

    def _note_minimum(self, name: str, at_s: float, *, is_eviction: bool = False) -> None:
        group = self._groups.get(name)
        if group is not None:
            has_minimum = self._running(name) >= group.spec.min_member
            self._broken.note(group, at_s, has_minimum=has_minimum, is_eviction=is_eviction)

    def gang_of(self, pod: Pod) -> str:
        """Return the PodGroup of a pod: the one it names, or that of its controller."""
        named = pod.metadata.annotations.get(POD_GROUP_ANNOTATION)
        if named:
            return named
        owners = {owner.uid for owner in pod.metadata.owner_references}
        for name, group in self._groups.items():
            if any(member.controller in owners for member in group.spec.members or ()):
                return name
        return ""

    def _note_priority(self, group: PodGroup) -> None:
        """Note the priority of a gang: of its class, else the highest of its pods."""
        name = group.metadata.name
        value = self._priorities.get(group.spec.priority_class_name or "")
        if value is None:
            of_pods = (p.spec.priority or 0 for p in self._pods.values() if self.gang_of(p) == name)
            value = max(of_pods, default=0)
        self._priority_range[name].append(value)

    def _note_queue(self, group: PodGroup, at_s: float) -> None:
        """Note the queue of pods that came before their PodGroup."""
        name = group.metadata.name
        for uid, pod in self._pods.items():
            if self.gang_of(pod) == name:
                self._shares.note_queue(uid, self._queue(name), at_s)

    def _note_wanted(self, pod: Pod | None, at_s: float) -> None:
        if pod is not None and pod.status.nominated_node_name and not pod.spec.node_name:
            self._wanted_s[pod.status.nominated_node_name][self.gang_of(pod)] = at_s

    def _is_broken(self, name: str, group: PodGroup, sub_group: str | None) -> bool:
        """Whether a gang, a part of it that comes first or `sub_group` runs below its minimum."""
        return self._running(name) < group.spec.min_member or any(
            self._running(name, part.name) < (part.min_member or 0)
            for part in group.spec.sub_groups
            if not part.after or part.name == sub_group
        )

    def _running(self, name: str, part: str = "") -> int:
        """Return how many pods of a gang run, or of one part of it."""
        return sum(self._is_running(pod, name, part) for pod in self._pods.values())

    def _is_running(self, pod: Pod, name: str, part: str = "") -> bool:
        """Whether a pod of a gang runs, or of one part of it."""
        return (
            bool(pod.spec.node_name)
            and pod.status.phase not in ENDED
            and pod.metadata.deletion_timestamp is None
            and self.gang_of(pod) == name
            and part in {"", pod.metadata.labels.get(SUB_GROUP_LABEL)}
        )

    def _eviction(self, pod: Pod, change: Change) -> Iterator[str]:
        name = self.gang_of(pod)
        who = f"{change.writer.caller} evicts {pod.metadata.name} of {name}"
        group = self._groups.get(name)
        self._times[name] += 1
        if self._times[name] > _MOST * max(1, group.spec.min_member if group else 1):
            yield f"{who}, whose pods were evicted {self._times[name]} times"
        if group is None:
            return
        if self._is_broken(name, group, pod.metadata.labels.get(SUB_GROUP_LABEL)):
            if not self._claimants(name, self._queue(name), change.at_s):
                yield from self._broken.problems(who, group, change)
            return  # the rest of a gang that is broken, or is going
        running = [each for each in self._pods.values() if self._is_running(each, name)]
        if len(running) == group.spec.min_member and not group.spec.sub_groups:  # all go
            yield from self._budgets.problems(who, name, running, change)
        wanted = sorted(self._claimants(name, self._queue(name), change.at_s))
        if not wanted:
            yield f"{who}, and no pod is nominated for its room"
        elif not any(self._may_evict(claimant, group) for claimant in wanted):
            yield f"{who} for {', '.join(wanted)}, which may not have its room"
        elif not group.metadata.owner_references:  # those with a controller may also move
            queues = [self._queue(each) for each in wanted]
            for_whom = f"{who} for {', '.join(wanted)}"
            yield from self._shares.problems(for_whom, self._queue(name), queues, change)
            ran_s = change.at_s - self._whole_s.get(group.metadata.uid, 0.0)
            is_core = self._running(name) == group.spec.min_member
            if is_core and ran_s < self._min_runtime_s - _CLOCKS_S:
                yield f"{who}, which has run for {ran_s:.0f} s of {self._min_runtime_s:.0f} s"
        is_pinned = pod.metadata.annotations.get(PREEMPTIBLE_ANNOTATION) == "false"
        # What its queue has no quota for is bound as preemptible, beyond the first minimum.
        is_charged = pod.metadata.annotations.get(CHARGED_PREEMPTIBILITY_ANNOTATION)
        if (
            (group.spec.preemptibility == "NonPreemptible" or is_pinned)
            and is_charged != "Preemptible"
            and self._running(name) <= group.spec.min_member
        ):
            yield f"{who}, which is not preemptible"

    def _claimants(self, victim: str, queue: str, now_s: float) -> set[str]:
        """Return the gangs that are to get the room of a victim."""
        found = {
            claimant
            for node, claimants in self._wanted_s.items()
            for claimant, at_s in claimants.items()
            # A gang goes as a whole; within a queue it also frees what a limit allows.
            if node in self._nodes[victim]
            or self._queue(claimant) == queue
            or self._has_later_stage(claimant)
            if claimant != victim and (self._is_nominated(claimant, node) or at_s > now_s - 1)
        }
        if self._has_unused_room(victim):
            # It is free at once: the next gang is bound, without a nomination, after the evictions.
            found |= {self.gang_of(pod) for pod in self._pods.values() if not pod.spec.node_name}
        return found - {victim, ""}

    def _has_unused_room(self, name: str) -> bool:
        """Whether a gang has a rack for itself, or room that is kept for its later pods."""
        group = self._groups.get(name)
        topology = group.spec.topology if group is not None else None
        return (topology is not None and bool(topology.exclusive)) or any(
            KEPT_ROOM_ANNOTATION in pod.metadata.annotations
            for pod in self._pods.values()
            if self.gang_of(pod) == name
        )

    def _has_later_stage(self, name: str) -> bool:
        """Whether a gang also gets room for pods that are not nominated: they come later."""
        group = self._groups.get(name)
        return group is not None and any(
            any(first.condition != "Complete" for first in part.after)
            for part in group.spec.sub_groups
        )

    def _queue(self, name: str) -> str:
        group = self._groups.get(name)
        return group.spec.queue or "default" if group is not None else ""

    def _is_nominated(self, claimant: str, node: str) -> bool:
        return any(
            pod.status.nominated_node_name == node and not pod.spec.node_name
            for pod in self._pods.values()
            if self.gang_of(pod) == claimant
        )

    def _may_evict(self, claimant: str, victim: PodGroup) -> bool:
        """Whether a gang may have a victim's room; a victim with a controller may also move."""
        found = self._groups.get(claimant)
        if found is None or victim.metadata.owner_references:
            return True
        if (found.spec.queue or "default") != (victim.spec.queue or "default"):
            return True
        self._note_priority(found)
        self._note_priority(victim)
        highest = max(self._priority_range[claimant])
        return highest > min(self._priority_range[victim.metadata.name])
