"""The scheduler plugin dra: plans devices (`resource.k8s.io/v1`) for pods with claims.

The plugin watches slices, classes and claims. It refuses pods with claims that cannot be allocated,
and nodes without devices for them. A ledger of its own chooses the devices, and the binder plugin
of the same name writes them. A class can serve an extended resource (KEP-5004): on nodes whose
device plugin does not offer it, the plugin chooses devices, and the binder creates the claim.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from bindery.api import quantity
from bindery.api.names import GPU_RESOURCE
from bindery.kube.objects.claims import (
    EXTENDED_ANNOTATION,
    RESOURCE_CLAIMS,
    AllocationResult,
    ConsumerReference,
    DeviceClaim,
    ExtendedHandover,
    Handover,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    extended_claim_name,
)
from bindery.kube.objects.devices import DEVICE_CLASSES, RESOURCE_SLICES
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.sharedclaims import SHARING_GROUPS
from bindery.kube.objects.watched import ExtendedClaimStatus, KubeObject, Meta, OwnerReference, Pod
from bindery.kube.watches.store import Change
from bindery.scheduler.model.claimed_gpus import requested_gpus
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.domains import Domain, Freeable
from bindery.scheduler.model.holdings import held
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.reasons import ABOVE_LIMIT_ALONE, JobReason
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import NodeFailure, Refusal, Rows
from bindery.scheduler.model.views import StateView
from bindery.scheduler.plugins.dra import together
from bindery.scheduler.plugins.dra.claim_cache import ClaimCache
from bindery.scheduler.plugins.dra.claims import ClaimError
from bindery.scheduler.plugins.dra.gpu_offers import GpuOffers
from bindery.scheduler.plugins.dra.ledger import ClaimLedger
from bindery.scheduler.plugins.dra.node_fit import NodeFit
from bindery.scheduler.plugins.dra.references import ClaimKey, ClaimReferenceError
from bindery.scheduler.plugins.interface.nodes import NextPods
from bindery.scheduler.plugins.view import SessionView


def over_limit(session: SessionView, job: Job, tasks: Sequence[Task]) -> Refusal | None:
    """Refuse `tasks` if they would get GPUs that are counted at other pods, above a limit.

    A claim counts at one of its pods; another pod that is placed alone needs this check.
    """
    gpus = _counted_elsewhere(session, tasks)
    if not gpus:
        return None
    axis, ledger = session.state.axis, session.queue_ledger
    gpu = axis.index(GPU_RESOURCE)
    amount = gpus * quantity.scale(GPU_RESOURCE)
    amount += total(task.shape.request for task in tasks).get(gpu, 0)
    for row in ledger.chains[session.queue_row(job)]:
        allocated, limit = int(ledger.allocated[gpu, row]), session.shares.limit[gpu, row]
        if allocated + amount > limit:
            name = session.state.queues.entries[row].name
            own = held(job, session.state.nodes.least).get(gpu, 0)
            alone = f", {ABOVE_LIMIT_ALONE}" if own + amount > limit else ""
            return Refusal(
                JobReason.OVER_LIMIT,
                f"queue {name} holds {axis.display(gpu, allocated)} of "
                f"its limit of {axis.display(gpu, int(limit))} {GPU_RESOURCE}, and the claims of "
                f"the job request {axis.display(gpu, amount)} more{alone}",
            )
    return None


def _counted_elsewhere(session: SessionView, tasks: Sequence[Task]) -> int:
    """Return the GPUs of the claims of `tasks` that have none yet and count at other pods."""
    claiming = [task for task in tasks if Need.RESOURCE_CLAIMS in task.shape.needs]
    if not claiming:
        return 0
    ledger, counts_class = session.ledger(ClaimLedger), session.state.axis.gpus.counts_class
    found = {}
    for task in claiming:
        try:
            needs = ledger.needs(task)
        except ClaimReferenceError:  # `invalid_task` refuses the task
            continue
        for need in needs:
            if need.key not in found and ledger.needs_devices(need):
                found[need.key] = requested_gpus(need.claim.spec.devices, counts_class)
    return max(0, sum(found.values()) - sum(task.shape.claimed_gpus for task in claiming))


class DynamicResources:
    """Plans devices for claims. Keeps the claim cache and the ledger of the last session."""

    name = "dra"

    def __init__(self) -> None:
        self._cache = ClaimCache()
        self._node_fit = NodeFit(self._cache)
        self._offers = GpuOffers(self._cache)
        self._last: ClaimLedger | None = None

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return the kinds of devices, claims and their users."""
        return (RESOURCE_SLICES, DEVICE_CLASSES, RESOURCE_CLAIMS, PODS, *SHARING_GROUPS)

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change; return False, because this plugin has no `node_failures`."""
        self._cache.observe(change)
        return False

    def supported_needs(self) -> Collection[Need]:
        """Return the need for resource claims."""
        return (Need.RESOURCE_CLAIMS,)

    def ledger(self, session: SessionView, state: PlanState) -> ClaimLedger:
        """Return the ledger of claims for `session`."""
        # The plan of the last session is gone; cached answers that used it must not stay.
        if self._last is not None:
            self._last.close()
        self._node_fit.freshen(state.nodes)
        state.serve(self._cache.served())
        given = ((uid, data) for uid, _, data in session.handed_over(self.name))
        self._last = ClaimLedger(self._cache, self._node_fit, state, given)
        return self._last

    def offered_gpus(self, state: StateView) -> Mapping[int, int]:
        """Return the devices that count as GPUs by node row."""
        return self._offers.by_row(state.nodes, state.axis.gpus.counts_class)

    def over_capacity(
        self, session: SessionView, job: Job, tasks: Sequence[Task]
    ) -> Refusal | None:
        """Refuse `tasks` whose shared claims would exceed a limit of GPUs."""
        return over_limit(session, job, tasks)

    def invalid_task(self, session: SessionView, task: Task) -> Refusal | None:  # the protocol's
        """Refuse a task with unusable claims."""
        if Need.RESOURCE_CLAIMS not in task.shape.needs:
            return None
        problem = session.ledger(ClaimLedger).check(task)
        return (
            Refusal(JobReason.RESOURCE_CLAIM_NOT_READY, problem, is_lasting=True)
            if problem
            else None
        )

    def filters_tasks_of(self, shape: Shape) -> bool:
        """Return whether pods of `shape` have claims."""
        return Need.RESOURCE_CLAIMS in shape.needs

    def task_node_failures(self, session: SessionView, task: Task) -> Iterator[NodeFailure]:
        """Yield the nodes without access to allocated devices, or without devices to allocate."""
        ledger, nodes = session.ledger(ClaimLedger), session.state.nodes
        try:
            needs = ledger.needs(task)
            signature = ledger.signature(needs)
        except (ClaimReferenceError, ClaimError):  # `invalid_task` has refused the task
            return
        for need in needs:
            selector = ledger.reach(need)
            if selector is not None:
                text = f"cannot reach the devices of resource claim {need.key.name}"
                yield NodeFailure(text, ~self._node_fit.selected(nodes, selector))
        # `later` and not `now`: the ledger distinguishes room that is still being released.
        if signature:
            yield from self._node_fit.failures(nodes, signature, ledger.later)

    def gang_domains(
        self, session: SessionView, job: Job, pods: NextPods, freeable: Freeable | None
    ) -> Iterator[Domain] | None:
        """Return the nodes to try for pods of `job` that share a claim; None if none do."""
        if not job.stages and not any(
            Need.RESOURCE_CLAIMS in task.shape.needs for task in job.pending.values()
        ):
            return None
        return together.domains(
            session, pods(), partial(self.task_node_failures, session), freeable
        )

    def keeps_room_for(self, shape: Shape) -> bool:
        """Return whether pods of `shape` request resources that device classes serve."""
        served = self._cache.served()
        return bool(served) and any(
            name in served
            for each in (*shape.containers, *shape.init_containers)
            if each.resources is not None
            for name in {**(each.resources.limits or {}), **(each.resources.requests or {})}
        )

    def has_room(self, session: SessionView, shape: Shape, rows: Rows, later: bool) -> BoolColumn:  # noqa: ARG002  # the protocol's
        """Return for each of `rows` whether devices serve the extended resources of one more pod.

        The answer is that for after all releases; the ledger distinguishes the two.
        """
        nodes, ledger = session.state.nodes, session.ledger(ClaimLedger)
        fits: BoolColumn = np.ones(len(rows), dtype=np.bool_)
        for names, here in ledger.served_rows(shape, rows):
            try:
                _, prepared = ledger.extended(shape, names)
            except ClaimError:
                fits &= ~here
                continue
            for failure in self._node_fit.failures(nodes, (prepared,), ledger.later):
                fits &= ~(here & failure.nodes[rows])
        return fits

    def no_room_text(self, shape: Shape) -> str:  # noqa: ARG002  # the protocol's
        """Return the text for nodes without devices for extended resources."""
        return "have too few free devices for its extended resources"

    def bind_data(self, session: SessionView, task: Task, row: int) -> Mapping[str, Any] | None:  # noqa: ARG002  # the protocol's
        """Return the allocations for the claims of `task`, for the binder to write."""
        handover = session.ledger(ClaimLedger).handover(task)
        return msgspec.to_builtins(handover) if handover is not None else None

    def bind_effects(
        self,
        pod: Pod,
        node_name: str,  # noqa: ARG002  # the protocol's
        data: Mapping[str, Any],
    ) -> Iterable[KubeObject]:
        """Return the claims of `pod`, allocated and reserved as by the binder."""
        me = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        handover = msgspec.convert(data, Handover)
        if handover.extended is not None:
            yield from _created(pod, handover.extended, me)
        for each in handover.claims:
            claim = self._cache.claims.get(ClaimKey(pod.metadata.namespace, each.name))
            if claim is not None:
                yield _bound(claim, each.allocation, each.consumer or me)


def _bound(
    claim: ResourceClaim, allocation: AllocationResult, consumer: ConsumerReference
) -> ResourceClaim:
    status = claim.status
    others = [each for each in status.reserved_for if each.uid != consumer.uid]
    return msgspec.structs.replace(
        claim,
        status=msgspec.structs.replace(
            status,
            allocation=status.allocation or allocation,
            reserved_for=[*others, consumer],
        ),
    )


def _created(
    pod: Pod, planned: ExtendedHandover, consumer: ConsumerReference
) -> Iterator[KubeObject]:
    """Yield the claim for the pod's extended resources as the binder creates it, and the pod."""
    meta = pod.metadata
    name = extended_claim_name(meta.name, meta.uid)
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True
    )
    yield ResourceClaim(
        metadata=Meta(
            name=name,
            namespace=meta.namespace,
            uid=f"extended-{meta.uid}",
            annotations={EXTENDED_ANNOTATION: "true"},
            owner_references=[owner],
        ),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=planned.requests)),
        status=ResourceClaimStatus(allocation=planned.allocation, reserved_for=[consumer]),
    )
    shown = ExtendedClaimStatus(resource_claim_name=name, request_mappings=planned.mappings)
    status = msgspec.structs.replace(pod.status, extended_resource_claim_status=shown)
    yield msgspec.structs.replace(pod, status=status)
