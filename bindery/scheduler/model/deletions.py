"""Pods that are being deleted and do not end, such as those on a node that is not ready. Pure.

Used by the plugin gang and `status/gangs.py` for gangs that lack pods, and by `insight/waiting.py`.
"""

from collections.abc import Sequence

from bindery.api.bindrequest import few_names
from bindery.api.times import timestamp
from bindery.kube.objects.watched import Node
from bindery.scheduler.model.jobs import NO_ROW, Job, Task, TaskStatus
from bindery.scheduler.model.nodereading import not_ready_text


def unended_text(job: Job, nodes: Sequence[Node | None]) -> str:
    """Return which deleted pods of `job` do not end, since when and why; empty if all do."""
    causes: dict[str, list[Task]] = {}
    for task in job.tasks.values():
        cause = _cause(task, nodes)
        if cause:
            causes.setdefault(cause, []).append(task)
    return "; ".join(_text(causes[cause], cause) for cause in sorted(causes))


def _text(tasks: list[Task], cause: str) -> str:
    names = few_names(task.name for task in sorted(tasks, key=lambda each: each.order))
    until = timestamp(min(task.gone_by for task in tasks))
    verb = "1 pod is" if len(tasks) == 1 else f"{len(tasks)} pods are"
    return f"{verb} being deleted (grace period until {until}) and cannot end: {names}: {cause}"


def _cause(task: Task, nodes: Sequence[Node | None]) -> str:
    """Return why the deleted pod `task` does not end; empty if it is not deleted, or may end."""
    if task.pod_status is not TaskStatus.RELEASING or task.row == NO_ROW:
        return ""
    node = nodes[task.row]
    not_ready = not_ready_text(node) if node is not None else ""
    if not_ready:
        return f"node {task.node_name} {not_ready}"
    if task.status is TaskStatus.STUCK:
        return f"node {task.node_name} is ready, but does not end them (kubectl describe pod)"
    return ""
