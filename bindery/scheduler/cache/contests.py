"""PodGroups that select pods of an older PodGroup: each gets one event.

Owned by cluster.py. `bindery.kube.objects.membership` decides which PodGroup has a pod.
"""

from collections.abc import Callable, Mapping
from typing import Final

from bindery.api.names import MADE_BY_GROUPER, MADE_BY_LABEL, SKIP_GROUPER_KEY
from bindery.kube.objects.membership import GroupKey
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Meta, Pod
from bindery.scheduler.cache.members import JobMembership
from bindery.scheduler.model.jobs import JobKey

_WRITTEN_BY_GROUPER: Final = (
    " and which the grouper wrote: to keep the grouper off the pods, create them with "
    f'the annotation {SKIP_GROUPER_KEY}: "true"'
)

Report = Callable[[Meta, str], None]
"""Reports a text at the PodGroup with this metadata."""


class Contests:
    """The contests that were reported."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._reported: set[tuple[GroupKey, str]] = set()
        """A PodGroup, and the name of the older one that has a pod that it selects."""

    def note(self, pod: Pod, place: JobMembership, groups: Mapping[JobKey, PodGroup]) -> None:
        """Report at each PodGroup that selects `pod` and does not have it."""
        for other in place.others:
            group = groups.get(JobKey(*other, True))
            if group is None or (other, place.job.name) in self._reported:
                continue
            self._reported.add((other, place.job.name))
            text = f"pod {pod.metadata.name} belongs to PodGroup {place.job.name}, which is older"
            holder = groups.get(place.job)
            if holder is not None and holder.metadata.labels.get(MADE_BY_LABEL) == MADE_BY_GROUPER:
                text += _WRITTEN_BY_GROUPER
            self._report(group.metadata, text)

    def forget(self, job: JobKey) -> None:
        """Forget a deleted PodGroup."""
        if self._reported and job.is_group:
            self._reported = {each for each in self._reported if each[0] != job[:2]}
