"""What bound pods are charged as, where that is not what they and their PodGroup ask for.

Used by `pods`; pure. The counterpart of `bindery.scenario.charges`.
"""

from collections.abc import Mapping

from bindery.api import exclusive, preemptibility
from bindery.api.names import (
    CHARGED_PREEMPTIBILITY_ANNOTATION,
    EXCLUSIVE_DOMAINS_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    SCHEDULER_NAME,
)
from bindery.api.states import NON_PREEMPTIBLE_FROM
from bindery.kube.objects.watched import Pod, PodGroup
from bindery.scenario.capture.nodes import Entry
from bindery.scheduler.cache.reading import read_group
from bindery.scheduler.model.jobs import Job, JobKey


class OwnerCharges:
    """The charges of the pods of `owner`. `priorities`: PriorityClass -> its value."""

    def __init__(self, owner: PodGroup | Pod, priorities: Mapping[str, int]) -> None:
        meta = owner.metadata
        self._priorities = priorities
        self._job = Job(JobKey(meta.namespace, meta.name, isinstance(owner, PodGroup)))
        if isinstance(owner, PodGroup):
            read_group(self._job, owner)

    def of(self, pod: Pod, sub_group: str) -> Entry:
        """Return the keys of `pod` that are not as a pod on a node has them by default."""
        if not pod.spec.node_name or pod.spec.scheduler_name != SCHEDULER_NAME:
            return {}
        meta, entry = pod.metadata, Entry()
        charged = preemptibility.read(meta.annotations.get(CHARGED_PREEMPTIBILITY_ANNOTATION, ""))
        charged = True if charged is None else charged
        if charged != self._asks_preemptible(pod):
            entry["chargedPreemptible"] = charged
        unit = exclusive.exclusive_unit(meta.annotations, meta.labels)
        asked = self._job.exclusive_levels(sub_group, unit)
        held = exclusive.from_record(meta.annotations.get(EXCLUSIVE_DOMAINS_ANNOTATION), meta.uid)
        if asked and (held is None or not set(asked) & set(held.levels)):
            entry["exclusive"] = False
        return entry

    def _asks_preemptible(self, pod: Pod) -> bool:
        annotation = pod.metadata.annotations.get(PREEMPTIBLE_ANNOTATION, "")
        for said in (preemptibility.said(annotation), self._job.says_preemptible):
            if said is not None:
                return said
        own = pod.spec.priority or 0
        return self._priorities.get(self._job.priority_class or "", own) < NON_PREEMPTIBLE_FROM
