"""reclaim: a queue below its share takes back what other queues hold above theirs.

The rules are KAI-Scheduler's (v0.17, plugins/proportion/reclaimable), and compare the first
ancestors in which the two queues differ. Unlike there, only requested resources are compared, as in
Volcano's capacity plugin.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bindery.api.names import GPU_RESOURCE
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver import protection
from bindery.scheduler.solver.rules import Rule, UnitRefusal
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable


class ReclaimRule(Rule):
    """The claims, victims and amounts of reclaim."""

    name = "reclaim"

    def against_claim(self, session: Session, claim: RoomClaim) -> Iterator[Refusal]:
        """Refuse a claim if its queue would exceed its fair share of a requested resource."""
        shares, row = session.shares, session.queue_row(claim.job)
        held = session.queue_ledger.allocated[:, row]
        over = held + _request(session, claim) > shares.entitled[:, row]
        if claim.beside_pods is not None:
            # Domains differ in what they have beside the resources that pods of the gang request.
            over |= self._with_claim(session, claim, row) > shares.allocatable[:, row]
        if (over & shares.requested(claim.resources)).any():
            yield Refusal(
                JobReason.OVER_FAIR_SHARE, "with this job its queue would be above its fair share"
            )
        yield from protection.against_claim(session, claim)

    def eligible(self, session: Session, claim: RoomClaim, table: VictimTable) -> BoolColumn:
        """Return the units of reclaimable queues that hold more than they may keep."""
        mask, own = self.movable(session, claim, table).copy(), session.queue_row(claim.job)
        for queue, of_queue in table.by_queue.items():
            levels = levels_apart(session, own, queue)
            if levels is not None and not self._may_lose(session, claim, *levels):
                mask[of_queue] = False
        return mask

    def movable(self, session: Session, claim: RoomClaim, table: VictimTable) -> BoolColumn:
        """Return the units of reclaimable queues: a queue loses nothing by a move."""
        own = session.queue_row(claim.job)
        return table.mask(("reclaim", own), partial(_movable, session, table, own))

    def against_unit(
        self, session: Session, claim: RoomClaim, unit: EvictionUnit
    ) -> Iterator[UnitRefusal]:
        """Refuse units if their queue may not lose them now, or if their runtime is too short."""
        own, row = session.queue_row(claim.job), session.queue_row(unit.job)
        queues, levels = session.state.queues.entries, levels_apart(session, own, row)
        if levels is None:
            yield UnitRefusal(
                JobReason.RELATED_QUEUE, lambda: "one of the two queues is above the other"
            )
        elif not is_reclaimable(session, row, levels[1]):
            yield UnitRefusal(
                JobReason.NOT_RECLAIMABLE,
                lambda: f"queue {queues[row].name}, or one above it, is not reclaimable",
            )
        elif not self._may_lose(session, claim, *levels):
            yield UnitRefusal(
                JobReason.WITHIN_SHARE, partial(_within_text, session, claim, levels[1])
            )
        elif self._is_saturated_without(session, claim, unit, levels):
            mine, theirs = queues[levels[0]].name, queues[row].name
            yield UnitRefusal(
                JobReason.WOULD_BE_FULLER,
                lambda: (
                    f"queue {mine} would exceed its fair share and be fuller than queue {theirs}"
                ),
            )
        yield from protection.against_unit(session, claim, unit, "reclaim")

    def against_plan(
        self, session: Session, claim: RoomClaim, killed: Sequence[EvictionUnit]
    ) -> Iterator[Refusal]:
        """Refuse a plan if an ancestor of the claimant ends up fuller than a sibling that loses."""
        own = session.queue_row(claim.job)
        involved: dict[tuple[int, int], dict[int, int]] = {}
        for unit in killed:
            levels = levels_apart(session, own, session.queue_row(unit.job))
            if levels is not None:
                lost = total(task.shape.request for task in unit.tasks)
                resources = involved.setdefault(levels, dict.fromkeys(claim.resources, 0))
                resources.update(dict.fromkeys(lost, 0))
        if any(
            self._saturated(session, claim, levels, resources)
            for levels, resources in involved.items()
        ):
            text = "relative to its share, its queue would be fuller than the queue that loses"
            yield Refusal(JobReason.WOULD_BE_FULLER, text)

    def _may_lose(self, session: Session, claim: RoomClaim, own: int, other: int) -> bool:
        """Return whether queue `other` holds more of a requested resource than it may keep.

        More than its quota, if the claim stays within the quota of `own`; else more than its share.
        In the second case a queue of higher priority keeps all: it would take it back at once.
        """
        shares, queues = session.shares, session.state.queues.entries
        requested = shares.requested(claim.resources)
        held = session.queue_ledger.allocated[:, other]
        with_claim = self._with_claim(session, claim, own)
        # The quota is guaranteed: a claim within it needs less to win than one beyond it.
        within_quota = not ((with_claim > shares.quota[:, own]) & requested).any()
        if within_quota and ((held > shares.quota[:, other]) & requested).any():
            return True
        above = bool(((held > shares.allocatable[:, other]) & requested).any())
        return above and (within_quota or queues[own].priority >= queues[other].priority)

    def _with_claim(self, session: Session, claim: RoomClaim, own: int) -> NDArray[np.float64]:
        """Return what `own` holds with the claim; the ledger already counts its placed pods."""
        held = session.queue_ledger.allocated[:, own].astype(np.float64)
        if claim.beside_pods is not None:
            charged = session.account.of(claim.job)
            held += claim.beside_pods - (0 if charged is None else charged)
        for index, amount in claim.waiting_request().items():
            held[index] += amount
        return held

    def _is_saturated_without(
        self, session: Session, claim: RoomClaim, unit: EvictionUnit, levels: tuple[int, int]
    ) -> bool:
        """Return whether `against_plan` would refuse the plan if `unit` were evicted next.

        Its loss would not help then, but other units may still go.
        """
        nodes = session.state.nodes
        lost = total(nodes.demand(task.row, task.shape.request) for task in unit.tasks)
        if unit.is_core and (beside := session.account.of(unit.job)) is not None:
            for index in np.flatnonzero(beside).tolist():
                lost[index] = lost.get(index, 0) + int(beside[index])
        involved = {index: lost.get(index, 0) for index in (*claim.resources, *lost)}
        return self._saturated(session, claim, levels, involved)

    def _saturated(
        self,
        session: Session,
        claim: RoomClaim,
        levels: tuple[int, int],
        lost: Mapping[int, int],
    ) -> bool:
        """Return whether `levels[0]` would exceed its fair share and be fuller than `levels[1]`.

        Compared for each involved resource, with the claim. `lost`: the involved resources, and
        the amounts that `levels[1]` has yet to lose of each (position on the axis -> units).
        """
        (own, other), shares = levels, session.shares
        with_claim = self._with_claim(session, claim, own)
        held = session.queue_ledger.allocated[:, other]
        # A domain has resources that no pod requests: those without a quota are never short.
        exact = claim.beside_pods is not None
        share = (shares.allocatable if exact else shares.entitled)[:, own]
        for index, amount in lost.items():
            # A queue with a fair share of 0 cannot be compared; it may lose all of it.
            if not shares.counted[index] or shares.fair[index, other] <= 0:
                continue
            mine = _ratio(with_claim[index], share[index])
            left = _ratio(float(held[index] - amount), shares.fair[index, other])
            if mine > 1 and mine >= left:
                return True
        return False


def _movable(session: Session, table: VictimTable, own: int) -> BoolColumn:
    """Return the units of queues that are reclaimable for the queue `own`."""
    mask = np.zeros(len(table.units), dtype=np.bool_)
    for queue, of_queue in table.by_queue.items():
        levels = levels_apart(session, own, queue)
        mask[of_queue] = levels is not None and is_reclaimable(session, queue, levels[1])
    return protection.unprotected(session, table, mask, own, "reclaim")


def _request(session: Session, claim: RoomClaim) -> NDArray[np.float64]:
    request = np.zeros(len(session.state.axis))
    for index, amount in claim.request.items():
        request[index] = amount
    return request


def levels_apart(session: Session, own: int, other: int) -> tuple[int, int] | None:
    """Return the first ancestors, from the root down, in which the two queues differ.

    None: the queues are the same, or one is above the other.
    """
    mine = session.queue_ledger.chains[own][::-1]
    theirs = session.queue_ledger.chains[other][::-1]
    for one, two in zip(mine, theirs, strict=False):
        if one != two:
            return one, two
    return None


def is_reclaimable(session: Session, queue: int, level: int) -> bool:
    """Return whether `queue` and the queues above it, up to `level`, are all reclaimable."""
    if not session.state.queues.is_sound(queue):
        return False
    for row in session.queue_ledger.chains[queue]:
        if not session.state.queues.entries[row].reclaimable:
            return False
        if row == level:  # the queues above belong to both sides
            break
    return True


def _within_text(session: Session, claim: RoomClaim, row: int) -> str:
    """Return the message for a queue that holds no more than it may keep.

    It is about GPUs if the claim requests some, else about the first resource of the request.
    """
    shares, axis = session.shares, session.state.axis
    requested = np.flatnonzero(shares.requested(claim.resources))
    gpu = axis.index(GPU_RESOURCE)
    name = session.state.queues.entries[row].name
    if not len(requested):
        return f"queue {name} holds no requested resource that shares apply to"
    index = gpu if gpu in requested else int(requested[0])
    quota, share = shares.quota[index, row], shares.allocatable[index, row]
    units = int(session.queue_ledger.allocated[index, row])
    word, most = ("quota", quota) if units <= quota else ("share", share)
    if np.isinf(most):
        return f"queue {name} is within its {word}, which is unlimited"
    held, granted = axis.display(index, units), axis.display(index, int(most))
    amount = _gpus(granted) if index == gpu else f"{granted} {axis.names[index]}"
    return f"queue {name} is within its {word}: it holds {held} of {amount}"


def _gpus(amount: str) -> str:
    return f"{amount} GPU" if amount == "1" else f"{amount} GPUs"


def _ratio(held: float, share: float) -> float:
    if held <= 0:
        return 0.0
    return held / share if share > 0 else float("inf")
