"""The vetoes against victims, of plugins and of pods that ask to be left in place.

A veto is final; no other plugin or rule can undo it. The search asks before it chooses. Asking
plugins costs nothing if none has `may_evict`.
"""

import numpy as np

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.planning.session import Session
from bindery.scheduler.plugins.interface.jobs import VictimFilter
from bindery.scheduler.solver.victims import VictimTable


def permitted(
    session: Session, claim: RoomClaim, table: VictimTable, among: BoolColumn, action: str
) -> BoolColumn:
    """Return the units of `among` (mask) without a pod that is protected from `action`.

    A protected extra pod protects the core of its gang too: it would be left without its gang.
    """
    if action in session.state.disruption.spare_from:
        among = np.asarray(among & ~table.left_alone)
    filters = session.plugins.of(VictimFilter)
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
