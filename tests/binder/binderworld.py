"""A fake API server: pods, nodes and BindRequests in dictionaries.

A watch shows changes of requests to the binder, or the test does. Used with `fakebinder` by the
tests of what happens when things go wrong.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bindery.kube.objects.bindrequests import (
    BindRequest,
    BindRequestSpec,
    BindRequestStatus,
    CommittedStatement,
    PodBinding,
    StatementSpec,
    StatementStatus,
)
from bindery.kube.objects.watched import Meta

NAMESPACE = "here"
Key = tuple[str, str]


@dataclass
class FakePod:
    uid: str
    node: str = ""
    ending: bool = False
    version: int = 1
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass
class World:
    """What outlives every binder."""

    pods: dict[str, FakePod] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    requests: dict[Key, BindRequest] = field(default_factory=dict)
    bound_counts: dict[str, int] = field(default_factory=dict)  # name of a request
    watch: Callable[[BindRequest], None] = lambda _: None
    prepared: set[tuple[str, str]] = field(default_factory=set)  # plugin, pod UID
    finished: set[tuple[str, str]] = field(default_factory=set)  # plugin, pod UID
    log: list[tuple[str, ...]] = field(default_factory=list)
    now: float = 1_000_000.0
    keeps_time: bool = False  # whether pauses take the time of the event loop, or end at once
    version: int = 0

    def time(self) -> float:
        """Return the seconds since the epoch."""
        return self.now + (asyncio.get_running_loop().time() if self.keeps_time else 0.0)

    def statements(self) -> list[CommittedStatement]:
        """Return the Statements of all requests, and parts of them."""
        return [each for request in self.requests.values() for each in request.each()]

    def only(self, name: str) -> CommittedStatement:
        """Return the Statement, or the part of it, that is alone in the request `name`."""
        (statement,) = self.requests[NAMESPACE, name].each()
        return statement

    def store(self, request: BindRequest) -> BindRequest:
        """Store a request as the API server does, and show it to the watch."""
        self.version += 1
        meta = msgspec.structs.replace(request.metadata, resource_version=str(self.version))
        request = msgspec.structs.replace(request, metadata=meta)
        self.requests[meta.namespace, meta.name] = request
        self.watch(request)
        return request

    def respecify(self, name: str, **fields: Any) -> BindRequest:
        """Change the spec of a stored request."""
        request = self.requests[NAMESPACE, name]
        generation = request.metadata.generation + 1
        meta = msgspec.structs.replace(request.metadata, generation=generation)
        spec = msgspec.structs.replace(request.spec, **fields)
        return self.store(msgspec.structs.replace(request, metadata=meta, spec=spec))

    def withdraw(self, name: str, statement_id: str) -> BindRequest:
        """Withdraw a Statement, as the scheduler does."""
        withdrawn = self.requests[NAMESPACE, name].spec.withdrawn
        return self.respecify(name, withdrawn=[*withdrawn, statement_id])

    def end(self, name: str, **status: Any) -> BindRequest:
        """Write the status of the Statement that is alone in the request `name`."""
        request = self.requests[NAMESPACE, name]
        (statement,) = request.spec.statements
        entry = msgspec.convert({"id": statement.id, **status}, StatementStatus)
        whole = BindRequestStatus(phase=entry.phase, statements=[entry])
        return self.store(msgspec.structs.replace(request, status=whole))

    def bound(self) -> dict[str, str]:
        """Return the bound pods: UID -> node."""
        return {pod.uid: pod.node for pod in self.pods.values() if pod.node}


def add_pods(world: World, name: str, size: int) -> list[PodBinding]:
    """Add pods and nodes; return the bindings of pod i to node i."""
    for number in range(size):
        world.pods[f"{name}-{number}"] = FakePod(uid=f"uid-{name}-{number}")
        world.nodes.add(f"node-{number}")
    return [
        PodBinding(
            pod_name=f"{name}-{number}",
            pod_uid=f"uid-{name}-{number}",
            selected_node=f"node-{number}",
        )
        for number in range(size)
    ]


def statement(world: World, name: str, size: int, **fields: Any) -> StatementSpec:
    """Add pods and nodes; return the Statement that binds pod i to node i."""
    return StatementSpec(id=name, pods=add_pods(world, name, size), **fields)


def share(
    world: World, *statements: StatementSpec, name: str = "shared", **spec: Any
) -> BindRequest:
    """Add a request with these Statements."""
    return world.store(
        BindRequest(
            metadata=Meta(name=name, namespace=NAMESPACE, uid=f"br-{name}", generation=1),
            spec=BindRequestSpec(statements=list(statements), **spec),
        )
    )


def gang(
    world: World,
    size: int,
    *,
    name: str = "gang",
    parts: int = 1,
    min_bound: int | None = None,
    backoff_limit: int = 3,
    token: int = 0,
    after: str | None = None,
) -> list[BindRequest]:
    """Add pods, nodes and the request (or its parts) that binds pod i to node i."""
    bindings = add_pods(world, name, size)
    return [
        share(
            world,
            StatementSpec(
                id=name,
                part=part,
                parts=parts,
                after=after,
                pods=bindings[part * size // parts : (part + 1) * size // parts],
                min_bound=min_bound,
            ),
            name=f"{name}-{part}",
            backoff_limit=backoff_limit,
            fencing_token=token,
        )
        for part in range(parts)
    ]
