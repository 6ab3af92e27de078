"""The plugin numa: records the predicted zones on the pod, and keeps the order of bindings.

The record is part of the binding, so it needs no further request. A scheduler that starts later
reads the pod's zones from the record.

The kubelet gives zones to pods in the order of their bindings, and the scheduler predicted zones in
the order of its plan. So pods that are ready to be bound to one node are bound one after another,
in the order of the plan (`docs/decisions/041-bindings-in-the-order-of-the-plan.md`).
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from bindery.api import numaplacement
from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.api.numaplacement import NumaPlacement
from bindery.binder.plugins.interface import BindContext, PluginError
from bindery.kube.objects.bindrequests import PodBinding

_NO_ZONES: Final = "NoNumaZones"
_MOST_WAIT_S: Final = 2.0
"""Maximum seconds that a pod waits for others; then it may get other zones than predicted."""

_Rank = tuple[int, int]
"""The number of the scheduler's term, and the place in its plan."""


class Numa:
    """Records the predicted NUMA zones of pods, and keeps the order of the plan on each node."""

    name = numaplacement.PLUGIN

    def __init__(self) -> None:
        self._ready: dict[str, dict[str, _Rank]] = {}
        """Node -> UID -> rank, of pods that are ready to be bound or being bound."""
        self._left: dict[str, asyncio.Event] = {}
        """Node -> set, and forgotten, when a pod leaves `_ready`."""

    def concerns(self, binding: PodBinding) -> bool:
        """Return whether zones were predicted for the pod."""
        return self.name in binding.plugin_data

    async def pre_bind(self, context: BindContext) -> None:
        """Check the prediction."""
        _placement(context)

    async def confirm(self, context: BindContext) -> None:
        """Record that the pod is ready: all pods of its gang are prepared."""
        rank = context.statement.fencing_token, _placement(context).order
        ready = self._ready.setdefault(context.binding.selected_node, {})
        ready[context.binding.pod_uid] = rank

    async def before_bind(self, context: BindContext) -> None:
        """Wait until all earlier pods of the plan that are ready for this node are bound."""
        node, uid = context.binding.selected_node, context.binding.pod_uid
        context.waits_for = f"earlier bindings to {node}"
        with suppress(TimeoutError):
            async with asyncio.timeout(_MOST_WAIT_S):
                while not self._is_first(node, uid):
                    await self._left.setdefault(node, asyncio.Event()).wait()

    async def not_bound(self, context: BindContext) -> None:
        """Do nothing: `end_turn` has let the next pod proceed."""

    def end_turn(self, context: BindContext) -> None:
        """Let the next pods proceed."""
        node = context.binding.selected_node
        ready = self._ready.get(node, {})
        ready.pop(context.binding.pod_uid, None)
        if not ready:
            self._ready.pop(node, None)
        if event := self._left.pop(node, None):
            event.set()

    async def rollback(self, context: BindContext) -> None:
        """Let the next pods proceed: the turn of this pod has not come."""
        self.end_turn(context)

    def binding_annotations(self, context: BindContext) -> Mapping[str, str]:
        """Return the record of the predicted zones."""
        return {NUMA_ZONES_ANNOTATION: _placement(context).record(context.pod.uid)}

    def _is_first(self, node: str, uid: str) -> bool:
        ready = self._ready.get(node, {})
        own = ready.get(uid)
        return own is None or all(own <= rank for rank in ready.values())


def _placement(context: BindContext) -> NumaPlacement:
    found = numaplacement.from_data(context.data)
    if found is None:
        message = "the request has no readable NUMA zones for the pod"
        raise PluginError(message, reason=_NO_ZONES, permanent=True)
    return found
