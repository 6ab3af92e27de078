"""The vetoes of plugins against victims. A veto is final; no other plugin or rule can undo it.

The search asks before it chooses. Costs nothing if no plugin has `may_evict`.
"""

import numpy as np

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.rules import Claim
from bindery.scheduler.solver.victims import VictimTable


def permitted(
    session: Session, claim: Claim, table: VictimTable, among: BoolColumn, action: str
) -> BoolColumn:
    """Return the units of `among` (mask) without a pod that a plugin protects from `action`.

    A protected extra pod protects the core of its gang too: it would be left without its gang.
    """
    filters = session.plugins.victim_filters
    if not filters:
        return among
    mask, kept = among.copy(), set[int]()
    for index in np.flatnonzero(among).tolist():
        unit, first = table.units[index], table.first_of_job(index)
        may_go = all(
            plugin.may_evict(session, task, claim.job, action)
            for task in unit.tasks
            for plugin in filters
        )
        if not may_go or (unit.is_core and first in kept):
            kept.add(first)
            mask[index] = False
    return mask
