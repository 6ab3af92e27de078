"""Locks are released when their pod is not bound, but for a lock on which a successor relies."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import pytest

from bindery.api.hami.lock import NodeLock
from bindery.api.hami.vendor import Lock
from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.hami import plugin
from bindery.binder.plugins.hami.objects import HolderPod, LockAnnotations, LockedMeta, LockedNode
from bindery.binder.plugins.hami.plugin import Hami, HamiArguments
from bindery.binder.plugins.interface import BindContext
from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.bindrequests import CommittedStatement, PodBinding, StatementSpec
from bindery.kube.objects.watched import Meta

LOCK = NodeLock(1_000_000, "team", "card-0").encode()


@dataclass
class FakeApi:
    """A node with a lock, and the pod of the name in the lock."""

    pod_uid: str
    environment: Environment = field(default_factory=lambda: Environment(lambda: 0.0, Random(0)))
    patches: list[Mapping[str, Any] | None] = field(default_factory=list)

    async def get(self, _resource: object, name: str, namespace: str) -> HolderPod:
        if not self.pod_uid:
            raise NotFoundError(404, "NotFound", "no such pod")
        return HolderPod(metadata=Meta(name=name, namespace=namespace, uid=self.pod_uid))

    async def update(
        self,
        _resource: object,
        name: str,
        _namespace: str,
        change: Callable[[LockedNode], Mapping[str, Any] | None],
    ) -> None:
        locks = LockAnnotations(node=LOCK)
        self.patches.append(change(LockedNode(metadata=LockedMeta(name=name, annotations=locks))))


@pytest.mark.parametrize(
    ("pod_uid", "is_released"),
    [("own", True), ("", True), ("successor", False)],
    ids=["the pod waits", "the pod is gone", "a successor has its name"],
)
def test_a_lock_is_released_unless_a_successor_relies_on_it(
    pod_uid: str, is_released: bool
) -> None:
    api = FakeApi(pod_uid)
    binding = PodBinding(pod_name="card-0", pod_uid="own", selected_node="n0")
    statement = CommittedStatement(spec=StatementSpec(id="s", pods=[binding]))
    view = PodView("team", "card-0", "own", node="", ending=False)
    context = BindContext(cast("Client", api), view, statement, binding, {})
    plugin._values(context)[Lock.NODE] = LOCK

    asyncio.run(Hami(HamiArguments()).not_bound(context))

    assert bool(api.patches) is is_released
    assert not plugin._values(context)
