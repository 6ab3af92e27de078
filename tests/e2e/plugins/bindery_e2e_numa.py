"""A scheduler plugin that believes the reports of NUMA zones as they are, however old.

The tests compare it with the plugin numa. They put this folder on PYTHONPATH.
"""

from collections.abc import Mapping
from typing import Any

from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.plugins.numa.plugin import Numa
from bindery.scheduler.plugins.view import SessionView


class Believer(Numa):
    name = "believer"

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change of a node or a report; pods that the report lacks do not exist."""
        return False if isinstance(change.object, Pod) else super().observe(change)

    def bind_data(self, session: SessionView, task: Task, row: int) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Record nothing."""
        return None
