"""Extension points of plugins that know kinds of objects, or needs of pods, beyond the scheduler's
own: volumes, device claims, shares of a GPU.

Same rules as `interface`: pure, and a plugin implements those that it needs. The one invariant:
objects are observed between cycles only, so that a plan is made from one state of the cluster.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from bindery.kube.objects import KubeObject, Pod
from bindery.kube.resources import Resource
from bindery.kube.store import Change
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.plugins.interface import NodeFailure, Refusal, Rows

if TYPE_CHECKING:
    from bindery.scheduler.session import Session


@runtime_checkable
class Watches(Protocol):
    """Keeps in step with objects of the cluster."""

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return the kinds that `observe` wants: further ones, and of the scheduler's own.

        Kinds that the API server does not serve are left out without a word.
        """
        ...

    def observe(self, change: Change[KubeObject]) -> bool:
        """Take in a change of one of these kinds; called between cycles only.

        A plugin that is made anew is told of everything that exists as ADDED. Returns whether what
        its `node_failures` has answered may not be true any more.
        """
        ...


@runtime_checkable
class Supports(Protocol):
    """Cares for what pods ask for that nobody else does: without it they wait."""

    def supported_needs(self) -> Collection[Need]:
        """Return the needs that this plugin meets, always the same."""
        ...


@runtime_checkable
class TaskValid(Protocol):
    """Whether one pod can be planned at all."""

    def invalid_task(self, session: "Session", task: Task) -> Refusal | None:
        """Return why `task` cannot be planned whatever is free; None when it can. Be quick.

        Running pods are asked about too, before they are moved; `session.pod` does not have them.
        """
        ...


@runtime_checkable
class TaskNodeFilter(Protocol):
    """Which nodes one pod cannot use, beyond what its shape says."""

    def filters_tasks_of(self, shape: Shape) -> bool:
        """Return whether pods of `shape` may have wishes of their own: then each is placed by
        vectors of its own, so that a pod costs O(nodes). Must depend on `shape` alone.
        """
        ...

    def task_node_failures(self, session: "Session", task: Task) -> Iterable[NodeFailure]:
        """Yield the reasons against nodes for `task`, as the plan stands at this moment."""
        ...


@runtime_checkable
class NodeRoom(Protocol):
    """Whether nodes have room of a kind that the plugin's own ledger keeps (devices, say)."""

    def keeps_room_for(self, shape: Shape) -> bool:
        """Return whether pods of `shape` take any of this room. Must depend on `shape` alone."""
        ...

    def has_room(self, session: "Session", shape: Shape, rows: Rows, later: bool) -> BoolColumn:
        """Return for each of `rows` whether one more pod of `shape` fits.

        `later`: once all that is being released has gone. It may depend on these rows alone; it is
        asked anew for a row after each operation on it.
        """
        ...

    def no_room_text(self, shape: Shape) -> str:
        """Return what people read behind the count of nodes without: `insufficient …`."""
        ...


@runtime_checkable
class WorthWaiting(Protocol):
    """Prefers room that is being released on some nodes to idle room on others."""

    def worth_waiting(
        self, session: "Session", shape: Shape, row: int, rows: Rows
    ) -> BoolColumn | None:
        """Return which of `rows` pods of `shape` wait for rather than take the node at `row`.

        They fit at `row` now, and at `rows` once all that is being released has gone. None: they do
        not wait. Asked for each pod while anything is being released.
        """
        ...


@runtime_checkable
class WaitsForRelease(Protocol):
    """Holds a gang back that fits on its nodes until something else has been released."""

    def waits_for_release(self, session: "Session", job: Job, tasks: Sequence[Task]) -> bool:
        """Return whether `tasks` of `job`, which were just placed, wait for pods that are going.

        They are promised their nodes then. Asked for each gang once all of it has a place.
        """
        ...


@runtime_checkable
class GpuStrategy(Protocol):
    """How pods that ask for GPUs are placed, for plugins that score nodes by what they know of
    devices.
    """

    def gpu_strategy(self) -> Literal["binpack", "spread"]:
        """Return whether the fullest node goes first or the emptiest."""
        ...


@runtime_checkable
class BindEffects(Protocol):
    """What the binder plugin of the same name would do, for rehearsals and scenarios alone."""

    def bind_effects(
        self, pod: Pod, node_name: str, data: Mapping[str, Any]
    ) -> Iterable[KubeObject]:
        """Return the objects as they are once the binder has bound `pod` to the node.

        `data`: what `bind_data` has handed over. It may contain the pod itself, changed; it is
        called before the pod shows its node.
        """
        ...
