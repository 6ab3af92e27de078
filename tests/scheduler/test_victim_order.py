"""Victims come in the same order, however many of them are looked at."""

import numpy as np
from schedulerworld import engine_with, node, pod

from bindery.scheduler.solver.order import victims
from bindery.scheduler.solver.victims import VictimTable

PODS = 1200


def test_few_victims_come_in_the_order_in_which_they_come_among_all() -> None:
    pods = [pod(f"runs-{i:04}", priority=i * 7 % 5, on=f"node-{i % 20}") for i in range(PODS)]
    nodes = [node(f"node-{i}", cpu=100) for i in range(20)]
    engine = engine_with(*nodes, *pods)

    with engine.session() as session:
        table = VictimTable(session)
        everybody = list(victims(session, table, np.ones(PODS, dtype=np.bool_)))
        some = np.zeros(PODS, dtype=np.bool_)
        some[::40] = True
        few = list(victims(session, table, some))

    assert sorted(everybody) == list(range(PODS))
    assert few == [index for index in everybody if some[index]]
    priorities = table.priority[everybody].tolist()
    assert priorities == sorted(priorities), "the lowest priority goes first"
