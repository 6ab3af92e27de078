"""gpusharing: GPU shares by KAI-Scheduler's annotations, and the single GPUs of each node.

The plugin refuses pods with invalid annotations, with the messages of the admission webhook. It has
the ledger of devices. It prefers nodes with room for a share on a shared GPU, with KAI's score of
10,000. Without this plugin, pods with shares wait, and only the sums of GPUs are planned.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bindery.api import gpushare
from bindery.api.base import ApiModel
from bindery.api.gpureservation import ReservationResources, given_resources
from bindery.api.gpushare import WHOLE, GpuShare
from bindery.kube.objects.watched import Node
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.nodereading import shares_by_hami
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import reservation_amounts
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import NodeFailure, Refusal, Rows
from bindery.scheduler.plugins.gpusharing.ledger import DeviceLedger
from bindery.scheduler.plugins.view import SessionView

_JOINS = 10_000.0


class GpuSharingArguments(ApiModel):
    """The arguments of gpusharing."""

    resources: ReservationResources = Field(default_factory=given_resources)
    """Requests and limits of reservation pods besides their GPU; equal to the binder's argument."""


class GpuSharing:
    """Places whole GPUs and GPU shares, device by device."""

    name = gpushare.PLUGIN
    arguments = GpuSharingArguments

    def __init__(self, arguments: GpuSharingArguments) -> None:
        self._reservation = reservation_amounts(arguments.resources.planned)

    def supported_needs(self) -> Collection[Need]:
        """Return the need for GPU shares."""
        return (Need.GPU_SHARE,)

    def invalid_task(self, session: SessionView, task: Task) -> Refusal | None:  # noqa: ARG002
        """Refuse an invalid share."""
        problems = task.shape.share_problems
        return Refusal(JobReason.INVALID_GPU_SHARE, "; ".join(problems)) if problems else None

    def node_failures(self, session: SessionView, shape: Shape) -> Iterator[NodeFailure]:
        """Yield the reasons against nodes for a share, independent of free room."""
        share = shape.request.share
        if share is None or share.portion == WHOLE:
            return  # the node ledger counts whole GPUs
        nodes = session.state.nodes
        yield NodeFailure(
            "share their GPUs by another protocol", _mask(nodes.nodes, shares_by_hami)
        )
        if share.memory_mib:
            has_gpus = nodes.allocatable[nodes.axis.index("gpu")] > 0
            memory = nodes.devices.memory_mib(np.arange(len(nodes.nodes)))
            # Without the memory of a device, the portion of a memory share cannot be computed.
            unknown = has_gpus & (memory == 0)
            yield NodeFailure("do not report the memory of their GPUs", unknown)
            yield NodeFailure(
                f"have GPUs with less than {share.memory_mib} MiB",
                has_gpus & (memory > 0) & (memory < share.memory_mib),
            )

    def keeps_room_for(self, shape: Shape) -> bool:
        """Return whether pods of `shape` request GPUs, whole or in part."""
        return shape.request.share is not None

    def is_by_sums(self, session: SessionView, shape: Shape) -> bool:
        """Return whether pods of `shape` request whole GPUs, and no GPU is shared."""
        share = shape.request.share
        is_whole = share is None or share.portion == WHOLE
        return is_whole and not session.state.nodes.devices.has_shared

    def has_room(self, session: SessionView, shape: Shape, rows: Rows, later: bool) -> BoolColumn:
        """Return for each of `rows` whether enough devices have room for one more pod."""
        share, table = shape.request.share, session.state.nodes.devices
        assert share is not None, "only called for pods that request GPUs"
        fits = table.fits_later(share, rows) if later else table.fits_now(share, rows)
        if share.portion < WHOLE:
            return fits
        # A node without single devices counts its GPUs elsewhere, for example in HAMi's ledger.
        return np.asarray(fits | (table.counts(rows) == 0))

    def no_room_text(self, shape: Shape) -> str:
        """Return the text for nodes with free room in too small parts."""
        share = shape.request.share
        if share is None or share.portion == WHOLE:
            return "have GPUs free only in part"
        return f"have no GPU with room for {_part(share)}"

    def node_scores(
        self, session: SessionView, shape: Shape, rows: Rows
    ) -> NDArray[np.float64] | None:
        """Return 10,000 for nodes with room for a share on shared devices.

        None if another plugin packs such pods: it also decides which GPUs are shared.
        """
        share = shape.request.share
        if share is None or share.portion == WHOLE or session.packing.is_packed(shape):
            return None
        return np.asarray(_JOINS * session.state.nodes.devices.joins_now(share, rows))

    def bind_data(self, session: SessionView, task: Task, row: int) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Return the granted share, for the binder to record on the pod."""
        share = task.shape.request.share
        if share is None or share.portion == WHOLE:
            return None
        return {"share": gpushare.as_annotations(share)}

    def ledger(self, session: SessionView, state: PlanState) -> DeviceLedger:
        """Return the ledger of devices for this session."""

        def wanted(task: Task, row: int) -> list[int] | None:
            devices = session.packing.chosen_devices(task, row)
            return [int(device) for device in devices] if devices is not None else None

        # The node table counts the room of reservation pods, which are not in the plan.
        state.nodes.set_reservation(state.axis.request(self._reservation))
        return DeviceLedger(state, wanted)


def _part(share: GpuShare) -> str:
    return str(GpuShare(share.portion, share.memory_mib))


def _mask(nodes: Sequence[Node | None], test: Callable[[Node], bool]) -> BoolColumn:
    return np.fromiter((n is not None and test(n) for n in nodes), np.bool_, len(nodes))
