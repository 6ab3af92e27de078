"""The arguments of one attempt to make room. Used by `search`, `rearrange` and `moves`."""

from dataclasses import dataclass

from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.placing.domains import ANYWHERE, PodDomains
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Statement
from bindery.scheduler.solver.rules import Rule
from bindery.scheduler.solver.victims import VictimTable


@dataclass(frozen=True, slots=True)
class SearchContext:
    """One claim, the rule of one action, and the Statement for the plan."""

    session: Session
    statement: Statement
    claim: RoomClaim
    rule: Rule
    table: VictimTable
    domains: PodDomains = ANYWHERE
    """The nodes that the pods of the claim may use."""
