"""The plugin gpusharing: the steps of a binding, and background work on groups.

Called by `chain` for each step, and run beside the transactions by `term`. Before a pod with a
share is bound, it gets the labels of its groups, then the groups get reservation pods, then the
ConfigMaps get the devices. In this order, a search for users of a group always finds the pod (see
`reservations`).
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from pydantic import BaseModel

from bindery.api import gpushare
from bindery.api.bindrequest import BindFailureReason, ReceivedResourceType
from bindery.api.gpushare import RECEIVED_TYPE_ANNOTATION
from bindery.api.gpushare import group_labels as labels_of
from bindery.api.names import SHARES_GPU_LABEL
from bindery.binder.plugins import visibledevices
from bindery.binder.plugins.gpusharing import admission, handover
from bindery.binder.plugins.gpusharing.arguments import GpuSharingArguments
from bindery.binder.plugins.gpusharing.healing import Healer
from bindery.binder.plugins.gpusharing.objects import SHARERS, Sharer
from bindery.binder.plugins.gpusharing.reservations import Reservations
from bindery.binder.plugins.gpusharing.unused import UnusedGroups
from bindery.binder.plugins.interface import BindContext, PluginError, PodManifest
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.events.recorder import EventRecorder
from bindery.kube.objects.bindrequests import PodBinding
from bindery.kube.watches.reflector import Change, EventType, Reflector

_COMPONENT: Final = "bindery-binder"


class GpuSharing:
    """Shares of GPUs, with reservation pods."""

    name: ClassVar[str] = gpushare.PLUGIN
    arguments: ClassVar[type[BaseModel]] = GpuSharingArguments

    def __init__(self, arguments: GpuSharingArguments) -> None:
        self._arguments = arguments
        self._reservations: Reservations | None = None
        self._unused: UnusedGroups | None = None
        self._begun = asyncio.Event()

    # -- admission -----------------------------------------------------------------------------

    def validate(self, pod: PodManifest) -> list[str]:
        """Return the problems of the share that the pod requests."""
        allows = self._arguments.allow_visible_devices
        return [*admission.problems(pod), *([] if allows else visibledevices.problems(pod))]

    def mutate(self, pod: PodManifest) -> PodManifest:
        """Return the pod with an environment that refers to its devices."""
        return admission.prepared(pod)

    # -- beside the transactions -----------------------------------------------------------------

    async def run(self, client: Client) -> None:
        """Mirror reservations while this binder leads; delete unused, re-create lost ones."""
        gone: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        reservations = self._reservations = Reservations(client, self._arguments, gone)
        sharers = Reflector(client, SHARERS, self._note_end, label_selector=SHARES_GPU_LABEL)
        unused = self._unused = UnusedGroups(reservations, sharers.objects.values)
        events = EventRecorder(client, _COMPONENT)
        healer = Healer(client, reservations, sharers.objects.values, gone, events)
        self._begun.set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(events.run())
                group.create_task(reservations.run())
                group.create_task(sharers.run())
                await reservations.wait_synced()
                await sharers.synced.wait()
                unused.look_at_all()
                group.create_task(unused.run())
                group.create_task(healer.run())
        finally:
            self._begun.clear()

    # -- steps ---------------------------------------------------------------------------------

    def concerns(self, binding: PodBinding) -> bool:
        """Return whether the pod gets a share."""
        return binding.received_resource_type == ReceivedResourceType.FRACTION

    async def pre_bind(self, context: BindContext) -> None:
        """Reserve the devices of the pod's groups, and write them for its container."""
        binding = context.binding
        if not binding.selected_gpu_groups:
            message = "the request names no GPU group for a pod with a share"
            raise PluginError(message, reason="NoGpuGroup", permanent=True)
        reservations = await self._at_work()
        pod = await self._label(context)
        handover.names_of(pod)  # fails first: devices that cannot be handed over are not reserved
        context.waits_for = f"node {binding.selected_node} to give a GPU to a reservation pod"
        devices = await asyncio.gather(
            *(
                reservations.hold(
                    binding.selected_node, group, pod.metadata.uid, pod.spec.tolerations or []
                )
                for group in binding.selected_gpu_groups
            )
        )
        portion = binding.received_gpu.portion if binding.received_gpu is not None else ""
        await handover.hand_over(
            context.client, pod, devices, portion, uses_cdi=self._arguments.uses_cdi
        )

    def binding_annotations(self, context: BindContext) -> Mapping[str, str]:
        """Return the record of the granted share: the pod's owner may change the request later."""
        share, groups = context.data.get("share"), context.binding.selected_gpu_groups
        # An empty record replaces a record that the pod's owner may have written.
        record = ""
        if isinstance(share, dict):
            record = gpushare.record(context.pod.uid, share, groups)
        return {gpushare.RECORD_ANNOTATION: record}

    async def rollback(self, context: BindContext) -> None:
        """Remove the groups from the pod, and their reservations unless other pods use them."""
        reservations, binding = await self._at_work(), context.binding
        pod = await self._read(context)
        if pod is not None and not pod.spec.node_name:
            labels: dict[str, str | None] = dict.fromkeys([*_group_labels(pod), SHARES_GPU_LABEL])
            await self._patch(pod, labels, None, context)
            await handover.take_back(context.client, pod)
        for group in binding.selected_gpu_groups:
            if not await reservations.release(
                group,
                binding.selected_node,
                besides=binding.pod_uid,
                statement=context.statement.spec.id,
            ):
                self._look_later(group, binding.selected_node)

    async def _label(self, context: BindContext) -> Sharer:
        """Write the labels of the groups on the pod; return the pod.

        Raises:
            PluginError: the pod is deleted, or another pod has its name.
        """
        gone = PluginError(
            "the pod no longer exists", reason=BindFailureReason.POD_GONE, permanent=True
        )
        pod = await self._read(context)
        if pod is None:
            raise gone
        groups = context.binding.selected_gpu_groups
        wanted = {**labels_of(groups), SHARES_GPU_LABEL: "true"}
        received = ReceivedResourceType.FRACTION.value
        stale = [name for name in _group_labels(pod) if name not in wanted]
        labels: dict[str, str | None] = {**dict.fromkeys(stale), **wanted}
        is_labelled = all(pod.metadata.labels.get(name) == value for name, value in labels.items())
        if is_labelled and pod.metadata.annotations.get(RECEIVED_TYPE_ANNOTATION) == received:
            return pod
        written = await self._patch(pod, labels, received, context)
        if written is None:
            raise gone
        return written

    async def _patch(
        self, pod: Sharer, labels: dict[str, str | None], received: str | None, context: BindContext
    ) -> Sharer | None:
        """Write labels and received devices; None removes. Return None if the pod is deleted."""
        meta = pod.metadata
        annotations = {RECEIVED_TYPE_ANNOTATION: received}
        metadata = {"uid": meta.uid, "labels": labels, "annotations": annotations}
        try:
            return await context.client.patch(
                SHARERS, meta.name, {"metadata": metadata}, namespace=meta.namespace
            )
        except NotFoundError:
            return None

    async def _read(self, context: BindContext) -> Sharer | None:
        """Return the pod if it still has the UID of the context."""
        try:
            pod = await context.client.get(SHARERS, context.pod.name, context.pod.namespace)
        except NotFoundError:
            return None
        return pod if pod.metadata.uid == context.pod.uid else None

    async def _at_work(self) -> Reservations:
        """Wait until this plugin runs beside the transactions."""
        await self._begun.wait()
        assert self._reservations is not None, "it has begun"
        return self._reservations

    def _note_end(self, change: Change[Sharer]) -> None:
        """Check the groups of a pod that has ended or was deleted."""
        pod = change.object
        if change.type is EventType.DELETED or pod.has_ended:
            for group in pod.groups:
                self._look_later(group, pod.spec.node_name)

    def _look_later(self, group: str, node: str) -> None:
        if self._unused is not None:
            self._unused.look_at(group, node)


def _group_labels(pod: Sharer) -> Iterable[str]:
    for name in pod.metadata.labels:
        if gpushare.is_group_label(name):
            yield name
