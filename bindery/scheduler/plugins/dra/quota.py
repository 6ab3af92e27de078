"""Limits of GPUs for pods that share resource claims.

A claim counts at one of its pods. Another pod that is placed alone would get the devices without a
check of the limit, so the check is here.
"""

from collections.abc import Sequence

from bindery.api import quantity
from bindery.api.names import GPU_RESOURCE
from bindery.scheduler.model.claimed_gpus import requested_gpus
from bindery.scheduler.model.holdings import held
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.reasons import ABOVE_LIMIT_ALONE, JobReason
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.shapes import Need
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.plugins.dra.ledger import ClaimLedger
from bindery.scheduler.plugins.dra.references import ClaimReferenceError
from bindery.scheduler.plugins.view import SessionView


def over_limit(session: SessionView, job: Job, tasks: Sequence[Task]) -> Refusal | None:
    """Refuse `tasks` if they would get GPUs that are counted at other pods, above a limit."""
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
