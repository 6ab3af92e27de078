"""Which unbound pods are spoken for: by a BindRequest, or by a commit that is being written.

A hold makes a pending pod count as Binding on its node. It ends when the request is finished
without the pod, is deleted, or could not be created. A pod that the request says is bound keeps its
hold until the pod itself shows its node: the two watches may arrive in any order.

Two schedulers may commit one pod in two requests: each keeps its own hold, and which one counts
depends on the requests alone, never on the order in which they came.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bindery.api import bindrequest
from bindery.kube.objects import BindRequest, BindRequestSpec
from bindery.scheduler.model.jobs import Uid

RequestKey = tuple[str, str]
"""Namespace and name of a BindRequest."""
Spec = bindrequest.BindRequestSpec | BindRequestSpec
"""What a request asks for, as it is written or as it is read."""


@dataclass(frozen=True, slots=True)
class Hold:
    """One pod's place in a request."""

    node_name: str
    is_bound: bool = False
    """Whether the request says that the pod has been bound."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Plugin -> what it has handed to the binder for the pod."""
    gpu_groups: tuple[str, ...] = ()
    """The GPU groups that were chosen for it."""
    queue: str = ""
    """The queue that the request charges it to; "" if the request does not name one."""
    pod_group: str = ""
    """The UID of the PodGroup that the request was made for; "" for none."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """A commit that is being written. `since`: seconds since the epoch."""

    spec: bindrequest.BindRequestSpec
    since: float


class Holds:
    """Which requests hold which pods, and the requests that are known."""

    def __init__(self) -> None:
        self._by_pod: defaultdict[Uid, dict[RequestKey, Hold]] = defaultdict(dict)
        self._by_request: defaultdict[RequestKey, set[Uid]] = defaultdict(set)
        self.assumed: dict[RequestKey, Assumption] = {}
        """Commits whose request has not been seen in the watch yet."""
        self.requests: dict[RequestKey, BindRequest] = {}
        self.settled: dict[Uid, Hold] = {}
        """Pods that show their node -> the hold by which they got it, where plugins have handed
        something over: what the binder has written for them may come by other watches later."""

    @property
    def has_live(self) -> bool:
        """Whether any request is being written or carried out."""
        return bool(self.assumed) or any(not r.is_final for r in self.requests.values())

    def get(self, uid: Uid) -> Hold | None:
        """Return the hold on the pod `uid` that counts: a binding before plans, then by name."""
        holds = self._by_pod.get(uid)
        return holds[_first(holds)] if holds else None

    def spec_for(self, uid: Uid) -> Spec | None:
        """Return what the request asks for that holds the pod `uid`; None if it is gone."""
        holds = self._by_pod.get(uid)
        if not holds:
            return None
        key = _first(holds)
        known = self.requests.get(key) or self.assumed.get(key)
        return known.spec if known is not None else None

    def all(self) -> Iterator[tuple[Uid, Hold]]:
        """Yield each pod that is held, and the hold on it that counts."""
        for uid in self._by_pod:
            hold = self.get(uid)
            if hold is not None:
                yield uid, hold

    def assume(self, request: RequestKey, spec: bindrequest.BindRequestSpec, now: float) -> None:
        """Hold the pods of `request`, which is about to be created."""
        self.assumed[request] = Assumption(spec, now)
        holds = {
            Uid(pod.pod_uid): Hold(
                pod.selected_node,
                data=pod.plugin_data,
                gpu_groups=pod.selected_gpu_groups,
                queue=spec.queue,
                pod_group=_group_of(spec),
            )
            for pod in spec.pods
        }
        self._replace(request, holds)

    def forget(self, request: RequestKey) -> Iterable[Uid]:
        """End the holds of a request that could not be created; return the pods it held."""
        assumption = self.assumed.pop(request, None)
        if assumption is None or request in self.requests:
            return ()
        return self._replace(request, {})

    def put(self, request: BindRequest) -> Iterable[Uid]:
        """Take in a request's state; return the pods whose hold may have changed."""
        key = request.key
        self.assumed.pop(key, None)
        self.requests[key] = request
        final, bound = request.is_final, frozenset(request.status.bound_pods)
        return self._replace(
            key,
            {
                Uid(pod.pod_uid): Hold(
                    pod.selected_node,
                    pod.pod_uid in bound,
                    data=pod.plugin_data,
                    gpu_groups=tuple(pod.selected_gpu_groups),
                    queue=request.spec.queue,
                    pod_group=_group_of(request.spec),
                )
                for pod in request.spec.pods
                if not final or pod.pod_uid in bound
            },
        )

    def remove(self, request: BindRequest) -> Iterable[Uid]:
        """Forget a request that was deleted; return the pods that it no longer holds.

        What it has bound stays held until the pod shows it.
        """
        key = request.key
        self.requests.pop(key, None)
        bound = frozenset(request.status.bound_pods)
        held = self._by_request.get(key, ())
        return self._replace(key, {u: self._by_pod[u][key] for u in held if u in bound})

    def pod_gone(self, uid: Uid) -> None:
        """Forget the holds on a pod that is gone; but those with GPU groups end with the request.

        The binder may be creating reservation pods for them, wherever the pod is.
        """
        hold = self.get(uid)
        if hold is None or hold.is_bound or not hold.gpu_groups:
            self.settle(uid)

    def settle(self, uid: Uid) -> None:
        """Forget the holds on a pod that is bound now, or gone."""
        hold = self.get(uid)
        if hold is not None and hold.data:
            self.settled[uid] = hold
        for request in self._by_pod.pop(uid, {}):
            self._by_request[request].discard(uid)
            if not self._by_request[request]:
                del self._by_request[request]

    def _replace(self, request: RequestKey, holds: Mapping[Uid, Hold]) -> list[Uid]:
        """Let `request` hold exactly `holds`; return all pods that it held or holds."""
        before = self._by_request.pop(request, set())
        for uid in before - holds.keys():
            del self._by_pod[uid][request]
            if not self._by_pod[uid]:
                del self._by_pod[uid]
        for uid, hold in holds.items():
            self._by_pod[uid][request] = hold
        if holds:
            self._by_request[request] = set(holds)
        return sorted(before | holds.keys())


def _group_of(spec: Spec) -> str:
    return spec.pod_group.uid if spec.pod_group is not None else ""


def _first(holds: Mapping[RequestKey, Hold]) -> RequestKey:
    """Return the request among those that hold a pod that counts."""
    return min(holds, key=lambda request: (not holds[request].is_bound, request))
