"""The shares of all queues: the answer of `bindery queues`."""

from bindery.answers.source import Source
from bindery.scheduler.actions.holding import hold_rooms
from bindery.scheduler.insight.shares import ClusterShares, cluster_shares


def shares_of(source: Source) -> ClusterShares:
    """Return the shares of all queues.

    Raises:
        BadInputError: the configuration cannot be used.
    """
    with source.world().engine.session() as session:
        hold_rooms(session)
        return cluster_shares(session)
