"""The records of a pod that begins on a node, as the binder would have written them.

Used by `cluster`. The pod was bound as its job asks for, unless its entry says otherwise. Pure.
"""

from functools import cached_property

import msgspec

from bindery.api import exclusive, preemptibility
from bindery.api.names import CHARGED_PREEMPTIBILITY_ANNOTATION, EXCLUSIVE_DOMAINS_ANNOTATION
from bindery.api.states import NON_PREEMPTIBLE_FROM
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Pod
from bindery.scenario.jobs import ScenarioPod
from bindery.scheduler.cache.reading import read_group
from bindery.scheduler.model.jobs import Job, JobKey


class JobCharges:
    """What the pods of one job are charged as. `priority`: that of the job."""

    def __init__(self, group: PodGroup, priority: int) -> None:
        self._group, self._priority = group, priority

    @cached_property
    def _job(self) -> Job:
        meta = self._group.metadata
        job = Job(JobKey(meta.namespace, meta.name, True))
        read_group(job, self._group)
        return job

    def on(self, pod: Pod, entry: ScenarioPod) -> Pod:
        """Return `pod` of `entry`, which is on a node, with its records."""
        charged_as = preemptibility.word(self._is_preemptible(entry))
        records: dict[str, str] = {CHARGED_PREEMPTIBILITY_ANNOTATION: charged_as}
        meta = pod.metadata
        unit = exclusive.exclusive_unit(meta.annotations, meta.labels)
        levels = self._job.exclusive_levels(entry.sub_group, unit)
        if levels and entry.exclusive is not False:
            held = exclusive.HeldDomains(levels=levels)
            records[EXCLUSIVE_DOMAINS_ANNOTATION] = held.record(meta.uid)
        annotations = {**records, **meta.annotations}
        return msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(meta, annotations=annotations)
        )

    def _is_preemptible(self, entry: ScenarioPod) -> bool:
        for said in (entry.charged_preemptible, entry.preemptible, self._job.says_preemptible):
            if said is not None:
                return said
        return self._priority < NON_PREEMPTIBLE_FROM
