"""Write gangs by the names that people gave: `Job team/vis0` in place of `team/job-vis0-f3ba2458`.

Used by `explanation`. The grouper names a PodGroup after its workload, with a hash; nobody types
such a name. A PodGroup of a workload with several PodGroups keeps its own.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from bindery.api.names import MADE_BY_GROUPER, MADE_BY_LABEL
from bindery.kube.objects import PodGroup

_NAME: Final = re.compile(r"(?<![\w./-])([a-z0-9-]+/[a-z0-9.-]*[a-z0-9])(?![\w/-])")
"""The namespace and the name of a gang in a text."""


class PeopleNames:
    """The workloads of the PodGroups that the grouper wrote."""

    def __init__(self, groups: Iterable[PodGroup]) -> None:
        found = dict(_workloads(groups))
        count = Counter(found.values())
        self._names = {gang: workload for gang, workload in found.items() if count[workload] == 1}

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield `lines` with workloads in place of their PodGroups."""
        for line in lines:
            # The line about a PodGroup itself keeps its name.
            is_title = line.startswith("PodGroup ") or not self._names
            yield line if is_title else _NAME.sub(self._named, line)

    def _named(self, found: re.Match[str]) -> str:
        return self._names.get(found[1], found[1])


def _workloads(groups: Iterable[PodGroup]) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of each PodGroup of the grouper, and its workload."""
    for group in groups:
        meta = group.metadata
        if meta.labels.get(MADE_BY_LABEL) == MADE_BY_GROUPER and len(meta.owner_references) == 1:
            (owner,) = meta.owner_references
            yield f"{meta.namespace}/{meta.name}", f"{owner.kind} {meta.namespace}/{owner.name}"
