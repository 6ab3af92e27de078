"""The search for nodes with room changes neither the plan nor the caller's mask."""

import numpy as np

from bindery.scheduler.solver.room import useful_nodes
from bindery.scheduler.solver.victims import VictimTable
from tests.scheduler.schedulerworld import engine_with, node, pod


def test_the_mask_of_the_caller_is_unchanged() -> None:
    engine = engine_with(node("n1", cpu=1), node("n2", cpu=4), pod("p", cpu=2))
    (task,) = engine.cluster.state.tasks.values()

    with engine.session() as session:
        allowed = np.ones(len(session.state.nodes.nodes), dtype=np.bool_)
        nobody = np.zeros(0, dtype=np.bool_)
        useful = useful_nodes(session, VictimTable(session), nobody, allowed, task)

        assert [session.state.nodes.name(row) for row in np.flatnonzero(useful).tolist()] == ["n2"]
        assert allowed.all()
