"""The pods of a gang that are evicted together."""

from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.model.pinned_quota import PinnedQuota
from bindery.scheduler.solver.units import units
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    engine_with,
    group,
    modify,
    node,
    pod,
    request,
)

BOTH = {"uid-a": "n", "uid-b": "n"}


def going(engine: Engine) -> list[list[str]]:
    """Return the names of the pods of each unit of the gang."""
    with engine.session() as session:
        job = session.state.jobs[JobKey(NAMESPACE, "g", is_group=True)]
        found = units(session, job, PinnedQuota(session.state))
    return [sorted(task.name for task in unit.tasks) for unit in found]


def engine_with_gang(minimum: int) -> Engine:
    """Return an engine that has seen the node of one of two pods; the other is bound, too."""
    succeeded = request("r", BOTH, phase="Succeeded", bound=list(BOTH), group_name="g")
    pods = pod("a", group="g", on="n"), pod("b", group="g")
    return engine_with(node("n"), group("g", minimum), *pods, succeeded)


def test_a_gang_is_no_victim_until_all_pods_of_its_minimum_are_seen_on_their_nodes() -> None:
    engine = engine_with_gang(minimum=2)
    assert not going(engine)

    modify(engine.cluster, pod("b", group="g", on="n"))

    assert going(engine) == [["a", "b"]]


def test_an_extra_pod_that_is_being_bound_does_not_protect_its_gang() -> None:
    assert going(engine_with_gang(minimum=1)) == [["a"]]
