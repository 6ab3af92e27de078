"""Replaces names of PodGroups by names of workloads: `Job team/vis0` for `team/job-vis0-f3ba2458`.

Used by `bindery explain`. The grouper names a PodGroup after its workload, with a hash that users
do not know. Only the first PodGroup of a workload is replaced.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from bindery.kube.objects.ownernames import grouped, workload_text
from bindery.kube.objects.podgroups import PodGroup

_NAME: Final = re.compile(r"(?<![\w./-])([a-z0-9-]+/[a-z0-9.-]*[a-z0-9])(?![\w/-])")
"""The namespace and the name of a gang in a text."""


class PeopleNames:
    """The workloads of the PodGroups that the grouper wrote."""

    def __init__(self, groups: Iterable[PodGroup]) -> None:
        self._names = dict(_workloads(groups))

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield `lines` with workloads in place of their PodGroups."""
        for line in lines:
            # The line about a PodGroup itself keeps its name.
            is_title = line.startswith("PodGroup ") or not self._names
            yield line if is_title else _NAME.sub(self._named, line)

    def _named(self, found: re.Match[str]) -> str:
        return self._names.get(found[1], found[1])


def _workloads(groups: Iterable[PodGroup]) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of each replaceable PodGroup, and its workload."""
    for group in groups:
        meta, owner = group.metadata, grouped(group)
        if owner is not None and workload_text(group):
            yield f"{meta.namespace}/{meta.name}", f"{owner.kind} {meta.namespace}/{owner.name}"
