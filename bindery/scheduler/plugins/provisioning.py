"""provisioning: no evictions for a gang whose nodes are on their way.

The plugin reads ProvisioningRequests; `status/provisioning` writes them. It belongs to no default
configuration.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from bindery.api.names import PROVISIONING_REQUEST_ANNOTATION as ANNOTATION
from bindery.api.provisioning import PLUGIN, ProvisioningArguments
from bindery.api.times import seconds, timestamp
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.provisioning import PROVISIONING_REQUESTS, ProvisioningRequest
from bindery.kube.objects.resources import POD_GROUPS, Resource
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.store import Change, EventType, Key, key_of
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.verdicts import RoomNote
from bindery.scheduler.plugins.view import SessionView


class Provisioning:
    """Holds evictions back by the conditions of ProvisioningRequests."""

    name = PLUGIN
    arguments = ProvisioningArguments

    def __init__(self, arguments: ProvisioningArguments) -> None:
        self._arguments = arguments
        self._requests: dict[str, dict[Key, ProvisioningRequest]] = {}
        """UID of a PodGroup -> its requests."""
        self._owners: dict[Key, str] = {}
        """Request -> UID of its PodGroup."""
        self._group_annotations: dict[str, dict[str, str]] = {}
        """UID of a PodGroup -> its annotation, if it has one."""

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return the kinds of requests and of gangs."""
        return (PROVISIONING_REQUESTS, POD_GROUPS)

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change; return False, because this plugin has no `node_failures`."""
        request = change.object
        if isinstance(request, PodGroup):
            uid, annotations = request.metadata.uid, request.metadata.annotations
            self._group_annotations.pop(uid, None)
            if ANNOTATION in annotations and change.type is not EventType.DELETED:
                self._group_annotations[uid] = {ANNOTATION: annotations[ANNOTATION]}
        if isinstance(request, ProvisioningRequest):
            key, uid = key_of(request.metadata), request.group.uid
            self._forget(key)
            if uid and change.type is not EventType.DELETED:
                self._requests.setdefault(uid, {})[key] = request
                self._owners[key] = uid
        return False

    def is_starving(self, session: SessionView, job: Job) -> bool:
        """Return whether no nodes are on their way for `job`, and no answer is awaited."""
        awaits_nodes = self._awaited(session, job) is not None
        return not awaits_nodes and self._answer_by(session, job) is None

    def explain_room(self, session: SessionView, job: Job) -> RoomNote | None:
        """Return what is known about the nodes of `job`; None without a request."""
        awaited = self._awaited(session, job)
        if awaited is not None:
            request, until = awaited
            text = (
                f"its nodes are on their way: ProvisioningRequest {request.metadata.name} is "
                f"{_state(request)}; no pods are evicted for it until {timestamp(until)}"
            )
            return RoomNote(text, nodes_requested=True)
        answer_by = self._answer_by(session, job)
        if answer_by is not None:
            text = f"it asks for nodes; no pods are evicted for it until {timestamp(answer_by)}"
            return RoomNote(text, nodes_requested=True)
        requests = self._of(job)
        return RoomNote(f"ProvisioningRequest {_text(requests[0])}") if requests else None

    def _forget(self, key: Key) -> None:
        owner = self._owners.pop(key, "")
        known = self._requests.get(owner, {})
        known.pop(key, None)
        if not known:
            self._requests.pop(owner, None)

    def _awaited(self, session: SessionView, job: Job) -> tuple[ProvisioningRequest, float] | None:
        """Return the request whose nodes are awaited, and until when; None if there is none."""
        for request in self._of(job):
            condition = request.coming()
            if condition is None:
                continue
            changed = condition.last_transition_time or request.metadata.creation_timestamp
            until = (seconds(changed) or 0.0) + self._arguments.await_seconds
            if session.now < until:
                return request, until
        return None

    def _answer_by(self, session: SessionView, job: Job) -> float | None:
        """Return until when the answer to a request for `job` is awaited; None if it is not.

        Evictions would come before the request otherwise, as they need no other process.
        """
        if not job.key.is_group or job.is_satisfied:
            return None
        requests = self._of(job)
        asked = (seconds(request.metadata.creation_timestamp) or 0.0 for request in requests)
        until = max(session.pending_since(job), *asked, 0.0) + self._arguments.answer_seconds
        if session.now >= until or any(request.status.conditions for request in requests):
            return None
        tasks = job.pending.values()
        pods = (pod for task in tasks if (pod := session.pod(task)) is not None)
        sources = chain(
            (self._group_annotations.get(job.uid, {}),), (pod.metadata.annotations for pod in pods)
        )
        if not self._arguments.is_asked(sources) or any(task.shares_gpu for task in tasks):
            return None
        return until

    def _of(self, job: Job) -> list[ProvisioningRequest]:
        known = self._requests.get(job.uid)
        return [known[key] for key in sorted(known)] if known else []


def _state(request: ProvisioningRequest) -> str:
    coming = request.coming()
    return coming.type if coming is not None else ""


def _text(request: ProvisioningRequest) -> str:
    name, ended, coming = request.metadata.name, request.ended(), request.coming()
    if ended is not None:
        return f"{name} is {ended.type}: {ended.message or ended.reason}"
    if coming is not None:
        return f"{name} is {coming.type}, but its nodes have not come in time"
    return f"{name} has brought no nodes yet"
