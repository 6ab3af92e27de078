"""The key of a queue follows what it holds, whatever was asked before."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scheduler.fairness.shares import Shares
from bindery.scheduler.planning.session import Session
from bindery.scheduler.usage.source import nothing_past
from tests.scheduler.schedulerworld import NOW, engine_with, node, pod, queue, session_of
from tests.sizes import examples

QUEUES = ("one", "two")
CORES = st.integers(-4, 4)


def divided(session: Session) -> Shares:
    state = session.state
    shares = Shares(state, session.queue_ledger, state.nodes.total(()), nothing_past(), NOW)
    shares.divide()
    return shares


@given(
    asked=st.lists(st.tuples(st.sampled_from(QUEUES), CORES, st.integers(0, 6), CORES), max_size=12)
)
@settings(max_examples=examples(21))
def test_a_key_does_not_depend_on_earlier_questions(
    asked: list[tuple[str, int, int, int]],
) -> None:
    engine = engine_with(
        node("n", 16),
        queue("one", quotas={"cpu": 4}),
        queue("two", quotas={"cpu": 2}),
        *(pod(f"{name}-{index}", queue=name) for name in QUEUES for index in range(4)),
    )
    session = session_of(engine.cluster)
    rows, cpu = session.state.queues.rows, session.state.axis.index("cpu")
    # All are divided before the first change, as in one session.
    shares, *unasked = [divided(session) for _ in range(1 + len(QUEUES) * len(asked))]
    for name, charged, cores, changed in asked:
        amounts = np.zeros(len(session.state.axis), dtype=np.int64)
        amounts[cpu] = charged * 1000
        # A queue that comes back to an earlier amount gets the remembered key.
        session.queue_ledger.charge(rows[name], amounts, preemptible=True)
        request, change = {cpu: cores * 1000}, {cpu: changed * 1000}
        for each in QUEUES:
            key = shares.order_key(rows[each], request, change)
            assert key == unasked.pop().order_key(rows[each], request, change)
