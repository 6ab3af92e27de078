"""fairorder: among queues of one priority, the one that holds the smallest share goes first."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bindery.scheduler.plugins.arguments import demand_none
from bindery.scheduler.plugins.interface import SortKey
from bindery.scheduler.session import Session


class FairOrder:
    """Orders queues by dominant share: the largest part of any resource of the cluster that the
    queue holds (DRF, Ghodsi et al., NSDI 2011).
    """

    name = "fairorder"

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        demand_none(arguments)

    def queue_key(self, session: Session, queue_row: int) -> SortKey:
        """Smaller dominant share first."""
        held = session.queue_ledger.allocated[:, queue_row]
        return (float(np.max(held / session.cluster_total, initial=0.0)),)
