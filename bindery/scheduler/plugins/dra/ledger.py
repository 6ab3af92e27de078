"""The ledger of device claims: allocations and releases by the plan of one session.

The plugin `dra` offers it to every Statement. Allocating a pod chooses devices for its claims and
reserves them. Evicting a pod releases the claims without other users. Only the data for the binder
outlives the session. Invariant: every operation is undone exactly.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bindery.kube.objects.claims import (
    MOST_RESERVATIONS,
    AllocationResult,
    ClaimHandover,
    DeviceClaim,
    ExtendedHandover,
    Handover,
    ResourceClaim,
    extended_claim_name,
    is_extended,
)
from bindery.kube.objects.podspec import NodeSelector
from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.dra.candidates import AllocationError
from bindery.scheduler.plugins.dra.claim_cache import ClaimCache, readable_takes
from bindery.scheduler.plugins.dra.claims import ClaimError, PreparedClaim
from bindery.scheduler.plugins.dra.extended import Asked, asked
from bindery.scheduler.plugins.dra.node_fit import IN_USE, NodeFit, Signature
from bindery.scheduler.plugins.dra.references import (
    ClaimKey,
    ClaimReferenceError,
    Reference,
    references,
)
from bindery.scheduler.plugins.dra.result import allocation
from bindery.scheduler.plugins.dra.usage import Usage, UsageView


class _Extended(NamedTuple):
    """What a pod requests of device classes for extended resources."""

    pod_uid: str
    asked: Asked
    prepared: PreparedClaim


@dataclass
class ClaimState:
    """One claim in the plan."""

    claim: ResourceClaim
    allocation: AllocationResult | None
    users: set[str]
    """UIDs of the consumers with a reservation, usually pods."""
    leaving: set[str] = field(default_factory=set)
    """The users in `users` under release."""

    @property
    def is_released(self) -> bool:
        """Whether the devices become free, because all users are being released."""
        return self.allocation is not None and bool(self.users) and self.users <= self.leaving


class ClaimLedger:
    """Enters the operations of Statements into claims and devices."""

    name = "dra"

    def __init__(
        self,
        cache: ClaimCache,
        node_fit: NodeFit,
        state: PlanState,
        handed_over: Iterable[tuple[str, Mapping[str, Any]]],
    ) -> None:
        self._cache, self._node_fit, self._nodes = cache, node_fit, state.nodes
        self._planned = Usage(touched=cache.touched)
        self._promised = Usage(touched=cache.touched)
        self._releasing = Usage(touched=cache.touched)
        self.now = UsageView((cache.held, self._planned, self._promised))
        """The devices in use now."""
        self.later = UsageView((cache.held, self._planned, self._promised), (self._releasing,))
        """The devices in use after all releasing pods have gone."""
        self._states: dict[ClaimKey, ClaimState] = {}
        self._undo: defaultdict[str, list[ExitStack]] = defaultdict(list)
        self._given: dict[str, Handover] = {}
        """Pod UID -> data for the binder, for pods allocated in this session."""
        gone: dict[str, Handover] = {}
        for uid, handover in cache.decoded(handed_over):
            task = state.tasks.get(Uid(uid))
            if task is None:
                gone[uid] = handover
            # A request of a pod that has ended takes no devices.
            elif task.status.holds_room or task.status.is_active:
                self._assume(task, handover)
        if gone:
            self._assume_gone(gone)
        for uid in cache.pods:
            task = state.tasks.get(Uid(uid))
            # These releases are facts and not part of the plan, so nothing undoes them.
            if task is not None and task.status is TaskStatus.RELEASING:
                self._leave(task, ExitStack())

    # -- queries ---------------------------------------------------------------------------------

    def extended(self, shape: Shape, resources: Collection[str]) -> tuple[Asked, PreparedClaim]:
        """Return what pods of `shape` request of device classes for extended `resources`.

        Raises:
            ClaimError: it cannot be allocated, whatever is free.
        """
        served = self._cache.served()
        classes = {name: served[name] for name in resources}
        found = asked(shape.init_containers, shape.containers, classes)
        return found, self._cache.prepared(DeviceClaim(requests=list(found.requests)))

    def served_rows(self, shape: Shape, rows: Rows) -> Iterator[tuple[list[str], BoolColumn]]:
        """Yield the extended resources of pods of `shape` that devices serve on some of `rows`.

        With a mask of these rows; nodes differ in what their device plugins offer.
        """
        indices = sorted(self._nodes.served.intersection(shape.request.indices))
        if not indices:
            return
        table = np.array([self._nodes.serves(index, rows) for index in indices])
        for column in np.unique(table, axis=1).T:
            if column.any():
                names = [
                    self._nodes.axis.names[index]
                    for index, is_served in zip(indices, column, strict=True)
                    if is_served
                ]
                yield names, np.asarray((table == column[:, None]).all(axis=0))

    def resources_at(self, shape: Shape, row: int) -> list[str]:
        """Return the extended resources of pods of `shape` that devices serve on the node."""
        nodes, rows = self._nodes, np.array([row])
        return [
            nodes.axis.names[index]
            for index in sorted(nodes.served.intersection(shape.request.indices))
            if nodes.serves(index, rows)[0]
        ]

    def needs(self, task: Task) -> tuple[Reference, ...]:
        """Return the claims of `task`.

        Raises:
            ClaimReferenceError: a claim is missing, is being deleted, or belongs to another pod.
        """
        pod = self._cache.pods.get(task.uid)
        if pod is None:
            return ()
        return references(pod, self._cache.claims, self._cache.groups)

    def state_of(self, need: Reference) -> ClaimState:
        """Return the state of the claim in the plan."""
        found = self._states.get(need.key)
        if found is None:
            status = need.claim.status
            users = {each.uid for each in status.reserved_for}
            found = self._states[need.key] = ClaimState(need.claim, status.allocation, users)
        return found

    def signature(self, needs: Iterable[Reference]) -> Signature:
        """Return the claims in `needs` without devices, or with devices under release.

        Raises:
            ClaimError: a claim cannot be allocated, whatever is free.
        """
        return tuple(self._prepared(need) for need in needs if self.needs_devices(need))

    def needs_devices(self, need: Reference) -> bool:
        """Return whether the claim has no devices, or devices under release."""
        state = self.state_of(need)
        return state.allocation is None or state.is_released

    def reach(self, need: Reference) -> NodeSelector | None:
        """Return the nodes with access to the claim's devices; None for all, or without devices."""
        state = self.state_of(need)
        if state.allocation is None or state.is_released:
            return None
        return state.allocation.node_selector

    def check(self, task: Task) -> str | None:
        """Return why `task` cannot be planned because of its claims; None if it can."""
        try:
            needs = self.needs(task)
            self.signature(needs)
        except (ClaimReferenceError, ClaimError) as error:
            return str(error)
        full = [need.key.name for need in needs if self._is_full(need, task)]
        if full:
            return f"resource claim {full[0]} is reserved by {MOST_RESERVATIONS} pods already"
        return None

    def handover(self, task: Task) -> Handover | None:
        """Return the data for the binder about `task`; None without any."""
        return self._given.get(task.uid)

    def close(self) -> None:
        """Mark the pools of this session's plan as touched, because the plan no longer counts."""
        for usage in (self._planned, self._promised, self._releasing):
            devices = {
                device for device, count in (*usage.whole.items(), *usage.shares.items()) if count
            }
            self._cache.touched.extend({device.pool_id for device in devices})

    # -- the ledger ------------------------------------------------------------------------------

    def apply(self, operation: Operation) -> None:
        """Enter `operation`; refuse it if the claims of its pod do not allow it."""
        task = operation.task
        if task.uid not in self._cache.pods and not self._is_served(task, operation.row):
            return  # a pod without claims
        # If an entry fails, leaving the stack undoes the earlier ones. Otherwise it is kept: a pod
        # can have several operations, such as an eviction and a promise on another node.
        with ExitStack() as undo:
            if operation.kind is OperationKind.EVICT:
                self._leave(task, undo)
            else:
                self._take(task, operation.row, operation.kind, undo)
            self._undo[task.uid].append(undo.pop_all())

    def revert(self, operation: Operation) -> None:
        """Undo `operation`."""
        undo = self._undo.get(operation.task.uid)
        if undo:
            undo.pop().close()

    def _is_served(self, task: Task, row: int) -> bool:
        served = self._nodes.served  # empty in most clusters
        return bool(served) and bool(self.resources_at(task.shape, row))

    def _take(self, task: Task, row: int, kind: OperationKind, undo: ExitStack) -> None:
        is_promise = kind is OperationKind.PIPELINE
        problem = self.check(task)
        if problem is not None:
            raise LedgerRefusalError(problem)
        needs = self.needs(task)
        for need in needs:
            self._check_reach(need, row)
            # The claim gets new devices, which the API allows only after the old ones are released.
            if not is_promise and self.state_of(need).is_released:
                raise LedgerRefusalError(
                    f"resource claim {need.key.name} is being released", fits_later=True
                )
        wanted = [need for need in needs if self.needs_devices(need)]
        extended = self._extended_at(task, row)
        further = None
        if wanted or extended is not None:
            further = self._allocate(wanted, extended, row, is_promise, undo)
        given = []
        for need in needs:
            state = self.state_of(need)
            self._join(state, need.user(task.uid), undo)
            assert state.allocation is not None, "claims without devices were allocated above"
            given.append(
                ClaimHandover(
                    name=need.key.name,
                    uid=state.claim.metadata.uid,
                    allocation=state.allocation,
                    is_own=need.is_own,
                    is_new=need.claim.status.allocation is None,
                    consumer=need.consumer,
                )
            )
        # A promise is not committed in this session.
        if not is_promise and (given or further is not None):
            self._given[task.uid] = Handover(claims=given, extended=further)
            undo.callback(self._given.pop, task.uid, None)

    def _extended_at(self, task: Task, row: int) -> "_Extended | None":
        """Return what the pod requests of device classes on the node; None for nothing."""
        if not self._is_served(task, row):
            return None
        try:
            found = self.extended(task.shape, self.resources_at(task.shape, row))
        except ClaimError as error:
            raise LedgerRefusalError(f"its extended resources: {error}") from error
        return _Extended(task.uid, *found)

    def _allocate(
        self,
        needs: list[Reference],
        extended: "_Extended | None",
        row: int,
        is_promise: bool,
        undo: ExitStack,
    ) -> ExtendedHandover | None:
        """Choose devices for `needs` and `extended` on the node at `row`, and enter them.

        Returns:
            The data for the binder about `extended`.
        """
        signature = tuple(self._prepared(need) for need in needs)
        if extended is not None:
            signature = (*signature, extended.prepared)
        usage = self.later if is_promise else self.now
        try:
            found = self._node_fit.find(self._nodes, row, signature, usage)
            if found is None:
                # The caller can make a promise instead if releases will free enough.
                later = None
                if not is_promise:
                    later = self._node_fit.find(self._nodes, row, signature, self.later)
                raise LedgerRefusalError(IN_USE, fits_later=later is not None)
        except AllocationError as error:
            raise LedgerRefusalError(f"cannot serve its claims: {error}") from error
        ledger = self._promised if is_promise else self._planned
        # The last entry may be that of `extended`.
        for need, prepared, choices in zip(needs, signature, found, strict=False):
            state = self.state_of(need)
            chosen = allocation(prepared, state.claim.metadata.uid, choices, self._nodes.name(row))
            if state.is_released:
                # A claim that all users leave is deallocated; then it is allocated again.
                users, leaving = state.users, state.leaving
                state.users, state.leaving = set(), set()
                undo.callback(_restore, state, users, leaving)
            undo.callback(setattr, state, "allocation", state.allocation)
            state.allocation = chosen
            _enter(ledger, chosen, undo)
        if extended is None:
            return None
        name = self._nodes.name(row)
        chosen = allocation(extended.prepared, extended.pod_uid, found[-1], name)
        _enter(ledger, chosen, undo)
        requests, mappings = extended.asked
        return ExtendedHandover(requests=list(requests), mappings=list(mappings), allocation=chosen)

    def _join(self, state: ClaimState, uid: str, undo: ExitStack) -> None:
        if uid not in state.users:
            state.users.add(uid)
            undo.callback(state.users.discard, uid)
        elif uid in state.leaving:  # the pod moves to a node with access to the same devices
            state.leaving.discard(uid)
            undo.callback(state.leaving.add, uid)

    def _leave(self, task: Task, undo: ExitStack) -> None:
        """Release `task`, and all its claims without another user.

        Claims of its PodGroup stay reserved: Kubernetes releases them when the PodGroup ends.
        """
        try:
            needs = self.needs(task)
        except ClaimReferenceError:  # the claims of the pod are unknown
            return
        for need in needs:
            state = self.state_of(need)
            if task.uid not in state.users or task.uid in state.leaving:
                continue  # no reservation, or it is already being released
            state.leaving.add(task.uid)
            undo.callback(state.leaving.discard, task.uid)
            if state.is_released and state.allocation is not None:
                _enter(self._releasing, state.allocation, undo)
        pod = self._cache.pods.get(task.uid)
        claim = self._cache.extended_claim(pod) if pod is not None else None
        if claim is not None and claim.status.allocation is not None:
            _enter(self._releasing, claim.status.allocation, undo)

    # -- inside ----------------------------------------------------------------------------------

    def _assume(self, task: Task, handover: Handover) -> None:
        """Count the allocations for `task` at the binder, if its claims do not show them yet."""
        for each in handover.claims:
            key = ClaimKey(task.namespace, each.name)
            claim = self._cache.claims.get(key)
            # What a claim shows is counted in the cache. A claim of another UID is another claim.
            if claim is None or claim.metadata.uid != each.uid:
                continue
            need = Reference(key, claim, each.is_own, each.consumer)
            user = need.user(task.uid)
            if _shows(claim, user):
                continue
            state = self.state_of(need)
            if state.allocation is None:
                state.allocation = each.allocation
                self._planned.enter(readable_takes(each.allocation), 1)
            state.users.add(user)
        if handover.extended is not None:
            self._assume_extended(task, handover.extended)

    def _assume_extended(self, task: Task, planned: ExtendedHandover) -> None:
        name = extended_claim_name(task.name, task.uid)
        claim = self._cache.claims.get(ClaimKey(task.namespace, name))
        shown = claim.status.allocation if claim is not None else None
        if shown is None or shown.devices.results != planned.allocation.devices.results:
            self._planned.enter(readable_takes(planned.allocation), 1)

    def _assume_gone(self, gone: Mapping[str, Handover]) -> None:
        """Count the devices that the binder may still allocate for pods that are gone, by UID."""
        allocated = [c for c in self._cache.claims.values() if c.status.allocation is not None]
        shown = {claim.metadata.uid for claim in allocated}
        owners = ((c, owner.uid) for c in allocated for owner in c.metadata.owner_references)
        have_extended = {uid for claim, uid in owners if is_extended(claim, uid)}
        for uid, handover in gone.items():
            for each in handover.claims:
                if each.uid not in shown:
                    self._planned.enter(readable_takes(each.allocation), 1)
            if handover.extended is not None and uid not in have_extended:
                self._planned.enter(readable_takes(handover.extended.allocation), 1)

    def _prepared(self, need: Reference) -> PreparedClaim:
        try:
            return self._cache.prepared(need.claim.spec.devices)
        except ClaimError as error:
            raise ClaimError(f"resource claim {need.key.name}: {error}") from error

    def _is_full(self, need: Reference, task: Task) -> bool:
        users = self.state_of(need).users
        return len(users) >= MOST_RESERVATIONS and need.user(task.uid) not in users

    def _check_reach(self, need: Reference, row: int) -> None:
        selector = self.reach(need)
        if selector is not None and not self._node_fit.selected(self._nodes, selector)[row]:
            raise LedgerRefusalError(f"cannot reach the devices of claim {need.key.name}")


def _shows(claim: ResourceClaim, user: str) -> bool:
    """Return whether the status of `claim` has an allocation and a reservation for `user`."""
    status = claim.status
    return status.allocation is not None and any(u.uid == user for u in status.reserved_for)


def _restore(state: ClaimState, users: set[str], leaving: set[str]) -> None:
    state.users, state.leaving = users, leaving


def _enter(usage: Usage, devices: AllocationResult, undo: ExitStack) -> None:
    taken = readable_takes(devices)
    usage.enter(taken, 1)
    undo.callback(usage.enter, taken, -1)
