"""Room freed for a job is kept on the promised node until the job is bound or refused."""

from collections.abc import Sequence

from msgspec.structs import replace

from bindery.kube.objects.watched import Pod
from bindery.scheduler.cache.failures import MOST_REFUSALS, SPARE_S
from bindery.scheduler.cache.promises import KEPT_S
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.planning.reports import RefusedPlan
from bindery.scheduler.status.conditions import ConditionWrite, pending_writes
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    NOW,
    Clock,
    add,
    delete,
    engine_with,
    group,
    group_of_job,
    modify,
    node,
    plan,
    pod,
    report_of,
)

GOES = "2099-01-01T00:00:00Z"


def low(name: str, on: str, *, cpu: int = 8, deleting: str | None = None) -> Pod:
    return pod(name, cpu=cpu, on=on, priority=1, deleting=deleting)


def high(
    name: str = "high",
    *,
    cpu: int = 8,
    nominated: str = "",
    priority: int = 9,
    namespace: str = NAMESPACE,
) -> Pod:
    made = pod(name, cpu=cpu, priority=priority, namespace=namespace)
    return replace(made, status=replace(made.status, nominated_node_name=nominated))


def evicted(engine: Engine) -> list[str]:
    """Plan once, without room for anybody; return the pods that go."""
    assert plan(engine) == {}
    return [eviction.task.name for eviction in engine.report.evictions]


def refuse(
    engine: Engine, at: int = 0, *, is_begun: bool = False, retry_after_s: float | None = None
) -> None:
    """Let the API server refuse the eviction `at` of the only plan of the last cycle."""
    evictions: Sequence[Eviction] = engine.report.evictions
    left = tuple(evictions[at:] if is_begun else evictions)
    problem = "a budget forbids it"
    engine.dropped(RefusedPlan(evictions[at], left, problem, is_begun, retry_after_s))


def place_of(engine: Engine, name: str) -> tuple[str, str]:
    """Return the state of a pod, and its node."""
    report = report_of(engine, name).pods[Uid(f"uid-{name}")]
    return report.state, report.node


def write_for(engine: Engine, name: str) -> ConditionWrite | None:
    every = [w for w in pending_writes(engine.cluster, engine.report, NOW) if w.meta.name == name]
    return every[0] if every else None


def nominated_by(engine: Engine, name: str) -> str | None:
    write = write_for(engine, name)
    return write.nominated_node if write is not None else None


# ---- undecided ----------------------------------------------------------------------------------


def test_a_pod_is_not_nominated_while_the_evictions_for_it_may_be_refused() -> None:
    engine = engine_with(node("n"), low("l0", "n"))
    add(engine.cluster, high())
    assert evicted(engine)
    assert not evicted(engine), "they are requested once"
    assert nominated_by(engine, "high") == "n"

    key = report_of(engine, "high").key
    writes = pending_writes(engine.cluster, engine.report, NOW, undecided={key})

    assert "high" not in {write.meta.name for write in writes}


# ---- kept ---------------------------------------------------------------------------------------


def test_a_pod_keeps_its_promised_place_when_room_appears_elsewhere() -> None:
    engine = engine_with(
        *(node(f"n{i}") for i in range(3)), *(low(f"l{i}", f"n{i}") for i in "012")
    )
    add(engine.cluster, high())
    [victim] = evicted(engine)
    promised = f"n{victim[1:]}"
    assert place_of(engine, "high") == ("Pipelined", promised)

    modify(engine.cluster, *(low(f"l{i}", f"n{i}", deleting=GOES) for i in "012"))

    assert evicted(engine) == []
    assert place_of(engine, "high") == ("Pipelined", promised)


def test_idle_room_is_preferred_to_promised_room() -> None:
    engine = engine_with(node("n0"), node("n1"), low("l0", "n0"), low("l1", "n1"), high())
    [victim] = evicted(engine)
    other = "1" if victim == "l0" else "0"

    delete(engine.cluster, low(f"l{other}", f"n{other}"))

    assert plan(engine) == {"high": f"n{other}"}


def test_a_later_job_does_not_get_the_room_freed_for_another() -> None:
    engine = engine_with(node("n"), low("l", "n"), high())
    assert evicted(engine) == ["l"]
    add(engine.cluster, high("higher", priority=50))

    delete(engine.cluster, low("l", "n"))

    assert plan(engine) == {"high": "n"}


def test_a_promise_expires() -> None:
    clock = Clock()
    engine = engine_with(node("n"), low("l", "n"), high(), clock=clock)
    assert evicted(engine) == ["l"]
    add(engine.cluster, high("higher", priority=50))

    clock.now += KEPT_S
    delete(engine.cluster, low("l", "n"))

    assert plan(engine) == {"higher": "n"}


# ---- on the pod ---------------------------------------------------------------------------------


def test_a_pod_is_nominated_once_its_evictions_were_requested() -> None:
    engine = engine_with(node("n"), low("l", "n"), high())
    assert evicted(engine) == ["l"]
    assert write_for(engine, "high") is None

    assert evicted(engine) == []
    assert nominated_by(engine, "high") == "n"


def test_a_nomination_is_written_even_if_the_condition_is_up_to_date() -> None:
    engine = engine_with(node("n"), low("l", "n"), high())
    evicted(engine)
    evicted(engine)
    write = write_for(engine, "high")
    assert write is not None
    says_so = replace(high().status, conditions=[write.condition])
    modify(engine.cluster, replace(high(), status=says_so))

    evicted(engine)
    again = write_for(engine, "high")

    assert again is not None
    assert (again.condition, again.nominated_node) == (write.condition, "n")
    nominated = replace(says_so, nominated_node_name="n")
    modify(engine.cluster, replace(high(), status=nominated))
    evicted(engine)
    assert write_for(engine, "high") is None


def test_a_nomination_is_removed_when_the_promise_ends() -> None:
    clock = Clock()
    engine = engine_with(node("n"), low("l", "n"), high(), clock=clock)
    evicted(engine)
    modify(engine.cluster, low("l", "n", deleting=GOES), high(nominated="n"))
    assert evicted(engine) == []
    assert nominated_by(engine, "high") is None

    clock.now += KEPT_S
    evicted(engine)

    assert nominated_by(engine, "high") == ""


def test_a_pod_that_only_waits_for_terminating_pods_is_not_nominated() -> None:
    engine = engine_with(node("n"), low("l", "n", deleting=GOES), high())

    assert evicted(engine) == []

    assert place_of(engine, "high") == ("Pipelined", "n")
    assert nominated_by(engine, "high") is None


def test_a_restarted_scheduler_restores_the_promise_from_the_pods_nomination() -> None:
    engine = engine_with(node("n"), low("l", "n", deleting=GOES), high(nominated="n"))
    add(engine.cluster, high("higher", priority=50))

    assert evicted(engine) == []
    assert place_of(engine, "high") == ("Pipelined", "n")
    delete(engine.cluster, low("l", "n"))
    assert plan(engine) == {"high": "n"}


# ---- refused ------------------------------------------------------------------------------------


def test_another_victim_is_chosen_after_a_refused_eviction() -> None:
    engine = engine_with(node("n0"), node("n1"), low("l0", "n0"), low("l1", "n1"), high())
    [first] = evicted(engine)
    refuse(engine)

    [second] = evicted(engine)

    assert {first, second} == {"l0", "l1"}
    assert place_of(engine, "high") == ("Pipelined", f"n{second[1:]}")


def test_a_victim_is_spared_only_for_the_retry_time_of_the_api_server() -> None:
    clock = Clock()
    engine = engine_with(node("n"), low("old", "n"), high(), clock=clock)
    assert evicted(engine) == ["old"]
    refuse(engine, retry_after_s=10)

    clock.now += 9
    assert evicted(engine) == []
    clock.now += 2
    assert evicted(engine) == ["old"]


def test_a_job_with_a_refused_plan_reports_the_reason_and_has_no_place() -> None:
    clock = Clock()
    engine = engine_with(node("n"), low("l", "n"), high(), clock=clock)
    evicted(engine)
    refuse(engine)

    assert evicted(engine) == []

    message = report_of(engine, "high").message
    assert message.endswith("; no room was made: pod l is not evicted: a budget forbids it")
    assert place_of(engine, "high") == ("Pending", "")
    clock.now += SPARE_S
    assert evicted(engine) == ["l"]


def test_messages_about_evictions_contain_no_names_of_other_tenants() -> None:
    engine = engine_with(node("n"), low("merger", "n"), high("takeover", namespace="acme"))
    evicted(engine)
    [eviction] = engine.report.evictions
    assert eviction.reason == "preempt for queue default"
    refuse(engine)

    evicted(engine)

    message = report_of(engine, "takeover").message
    assert message.endswith(
        "no room was made: a pod of queue default is not evicted: the API server has refused it"
    )


def test_an_eviction_names_its_claimant_in_the_namespace_of_both() -> None:
    engine = engine_with(node("n"), low("l", "n"), high())
    evicted(engine)

    [eviction] = engine.report.evictions

    assert eviction.reason == "preempt for high (queue default)"


def test_an_eviction_names_the_workload_of_a_claimant_made_by_the_grouper() -> None:
    claimant = [group_of_job("train"), pod("train-0", group="job-train-f3ba2458", priority=9)]
    engine = engine_with(node("n"), low("l", "n"), *claimant)
    evicted(engine)

    [eviction] = engine.report.evictions

    assert eviction.reason == "preempt for Job train (queue default)"


def test_the_room_of_a_partly_refused_plan_is_kept_for_its_claimant() -> None:
    nodes = [node(f"n{i}", 4) for i in range(3)]
    victims = [low(f"l{i}", f"n{i}", cpu=4) for i in range(3)]
    engine = engine_with(*nodes, *victims, high("first", cpu=4))
    [gone] = evicted(engine)
    delete(engine.cluster, victims[int(gone[1:])])
    refuse(engine, is_begun=True)
    add(engine.cluster, high("higher", cpu=4, priority=50))

    assert plan(engine)["first"] == f"n{gone[1:]}"


def test_a_job_gets_a_limited_number_of_refused_evictions_in_a_row() -> None:
    count = MOST_REFUSALS + 3
    clock = Clock()
    nodes = [node(f"n{i}") for i in range(count)]
    engine = engine_with(
        *nodes, *(low(f"l{i}", f"n{i}") for i in range(count)), high(), clock=clock
    )

    asked = 0
    for _ in range(count):
        if evicted(engine):
            asked += 1
            refuse(engine)

    assert asked == MOST_REFUSALS
    clock.now += SPARE_S
    assert evicted(engine) != []


def test_room_that_another_leader_began_to_free_does_not_return_to_its_victims() -> None:
    """It ended after the first of two evictions."""
    members = [pod(f"g{i}", cpu=8, priority=9, group="gang") for i in range(2)]
    members = [
        replace(each, status=replace(each.status, nominated_node_name=f"n{i}"))
        for i, each in enumerate(members)
    ]
    engine = engine_with(
        *(node(f"n{i}") for i in range(2)), low("l1", "n1"), group("gang", 2), *members
    )
    add(engine.cluster, pod("l0-again", cpu=8, priority=1))

    assert evicted(engine) == ["l1"]

    delete(engine.cluster, low("l1", "n1"))
    assert plan(engine) == {"g0": "n0", "g1": "n1"}
