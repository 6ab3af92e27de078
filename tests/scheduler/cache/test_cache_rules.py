"""Events, case by case: the effect of each on jobs, holds and the memory of failures."""

import pytest
from msgspec.structs import replace as kube_replace

from bindery.api.names import NODE_POOL_LABEL
from bindery.kube.objects import podspec
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.holds import LINGER_S
from bindery.scheduler.model.jobs import JobKey, TaskStatus, Uid
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    NOW,
    add,
    configuration,
    delete,
    engine_with,
    gang,
    group,
    modify,
    node,
    plan,
    pod,
    queue,
    report_of,
    request,
    shared_request,
)


def cluster_with(*items: kube.KubeObject) -> Cluster:
    cluster = Cluster(configuration(), lambda: NOW)
    add(cluster, *items)
    return cluster


def status_of(cluster: Cluster, name: str) -> tuple[TaskStatus, str]:
    task = cluster.state.tasks[Uid(f"uid-{name}")]
    return task.status, task.node_name


def test_a_request_holds_its_pods_until_it_ends_without_binding_them() -> None:
    cluster = cluster_with(node("n"), pod("a"), request("r", {"uid-a": "n"}))
    assert status_of(cluster, "a") == (TaskStatus.BINDING, "n")

    modify(cluster, request("r", {"uid-a": "n"}, phase="Failed"))

    assert status_of(cluster, "a") == (TaskStatus.PENDING, "")


def test_the_statements_of_a_request_hold_their_pods_until_each_has_ended() -> None:
    cluster = cluster_with(node("n"), *(pod(name) for name in "abc"))

    def see(**phases: str) -> None:
        statements = [
            request(
                name,
                {f"uid-{name}": "n"},
                phase=phases.get(name, "Pending"),
                bound=[f"uid-{name}"] if phases.get(name) == "Succeeded" else [],
            )
            for name in "abc"
        ]
        add(cluster, shared_request("shared", *statements))

    see()
    assert {status_of(cluster, name) for name in "abc"} == {(TaskStatus.BINDING, "n")}

    see(a="Failed", b="Succeeded")
    assert status_of(cluster, "a") == (TaskStatus.PENDING, "")
    assert status_of(cluster, "c") == (TaskStatus.BINDING, "n")
    held = {name: cluster.holds.get(Uid(f"uid-{name}")) for name in "bc"}
    assert {name: hold.is_bound for name, hold in held.items() if hold is not None} == {
        "b": True,
        "c": False,
    }


@pytest.mark.parametrize("first", ["one", "copy"])
def test_a_refused_copy_of_a_statement_does_not_end_its_holds(first: str) -> None:
    one = request("r", {"uid-a": "n"})
    meta = kube.Meta(name="copy", namespace=NAMESPACE, uid="uid-copy")
    copy = kube_replace(one, metadata=meta)
    refused = kube_replace(copy, status=type(one.status)(phase="Failed", reason="Malformed"))
    cluster = cluster_with(node("n"), pod("a"), *((one, copy) if first == "one" else (copy, one)))

    modify(cluster, refused)
    assert status_of(cluster, "a") == (TaskStatus.BINDING, "n")
    delete(cluster, refused)
    assert status_of(cluster, "a") == (TaskStatus.BINDING, "n")
    delete(cluster, one)
    assert status_of(cluster, "a") == (TaskStatus.BINDING, "n")
    cluster.note_time(NOW + LINGER_S)
    assert status_of(cluster, "a") == (TaskStatus.PENDING, "")


def test_a_bound_pod_is_held_until_its_node_is_observed() -> None:
    cluster = cluster_with(node("n"), pod("a"))
    done = request("r", {"uid-a": "n"}, phase="Succeeded", bound=["uid-a"])

    add(cluster, done)
    assert status_of(cluster, "a") == (TaskStatus.BINDING, "n")
    delete(cluster, done)
    assert status_of(cluster, "a") == (TaskStatus.BINDING, "n")
    modify(cluster, pod("a", on="n"))
    assert status_of(cluster, "a") == (TaskStatus.RUNNING, "n")

    assert cluster.holds.get(Uid("uid-a")) is None


def test_a_pod_in_two_requests_is_held_while_one_of_them_is_active() -> None:
    one, other = request("r1", {"uid-a": "n1"}), request("r2", {"uid-a": "n2"})
    for first, second in ((one, other), (other, one)):
        cluster = cluster_with(node("n1"), node("n2"), pod("a"), first, second)
        assert status_of(cluster, "a") == (TaskStatus.BINDING, "n1")

        delete(cluster, one)
        cluster.note_time(NOW + LINGER_S)

        assert status_of(cluster, "a") == (TaskStatus.BINDING, "n2")
        assert view(cluster.state) == recount(cluster.state)


def test_another_schedulers_request_of_the_same_name_replaces_the_assumed_one() -> None:
    engine = engine_with(node("n", cpu=3), *gang("g", 3, 2))
    draft, *_ = engine.cycle()
    theirs = request(draft.name, {"uid-g-2": "n", "uid-g-0": "n"}, group_name="g")

    add(engine.cluster, theirs)
    engine.refused(draft)

    assert status_of(engine.cluster, "g-0") == (TaskStatus.BINDING, "n")
    assert status_of(engine.cluster, "g-1") == (TaskStatus.PENDING, "")
    assert status_of(engine.cluster, "g-2") == (TaskStatus.BINDING, "n")
    assert view(engine.cluster.state) == recount(engine.cluster.state)


def test_a_recreated_pod_inherits_nothing_from_the_old_pod_of_its_name() -> None:
    cluster = cluster_with(node("n"), pod("a"), request("r", {"uid-a": "n"}))

    delete(cluster, pod("a"))
    add(cluster, pod("a", uid="uid-second"))

    task = cluster.state.tasks[Uid("uid-second")]
    assert task.status is TaskStatus.PENDING


def test_a_pod_that_moves_to_another_gang_leaves_no_empty_job() -> None:
    cluster = cluster_with(pod("a"), pod("b", group="g"))

    modify(cluster, pod("a", group="h"), pod("b", group="h"))

    assert set(cluster.state.jobs) == {JobKey(NAMESPACE, "h", True)}


def test_a_single_pod_follows_its_queue_label() -> None:
    cluster = cluster_with(node("n"), pod("a", on="n", queue="old"))

    modify(cluster, pod("a", on="n", queue="new"))

    assert view(cluster.state).queues == {"new": {"cpu": (1000, 0, 0, 0), "pods": (1, 0, 0, 0)}}


def test_pods_of_a_deleted_gang_are_counted_as_if_it_had_never_existed() -> None:
    running = pod("a", group="g", on="n")
    seen = cluster_with(node("n"), group("g", 4, "q"), running)

    delete(seen, group("g", 4, "q"))

    assert (
        view(seen.state)
        == view(cluster_with(node("n"), running).state)
        != view(cluster_with(node("n"), group("g", 4, "q"), running).state)
    )


def test_a_pod_of_a_missing_gang_waits_and_does_not_block_others() -> None:
    engine = engine_with(node("n"), pod("lost", group="nowhere"), pod("fine"))

    assert plan(engine) == {"fine": "n"}
    assert report_of(engine, "nowhere").reason == "PodGroupDoesNotExist"


def test_all_pods_wait_without_nodes() -> None:
    engine = engine_with(pod("a"), *gang("g", 2))

    assert plan(engine) == {}
    assert report_of(engine, "a").message == "there are no nodes"


def test_a_pod_may_request_resources_that_no_node_offers() -> None:
    engine = engine_with(node("n"), pod("odd", more={f"x.io/r{i}": 1 for i in range(9)}), pod("a"))

    assert plan(engine) == {"a": "n"}
    assert report_of(engine, "odd").reason == "Unschedulable"


def test_an_unreadable_node_is_reported_and_not_used() -> None:
    bad = node("bad", more={"x.io/r": "many"})
    engine = engine_with(node("n"), bad, pod("a"))

    assert plan(engine) == {"a": "n"}
    (problem,) = engine.cluster.problems
    assert (problem.kind, problem.meta.name, problem.reason) == ("Node", "bad", "InvalidNode")
    assert "allocatable x.io/r: 'many' is not a Kubernetes quantity" in problem.message


def test_a_node_that_becomes_unreadable_loses_its_pods_until_it_is_readable_again() -> None:
    cluster = cluster_with(node("n"), pod("a", on="n"))

    modify(cluster, node("n", more={"x.io/r": "many"}))
    assert "n" not in cluster.state.nodes.rows
    modify(cluster, node("n"))

    assert view(cluster.state) == view(cluster_with(node("n"), pod("a", on="n")).state)


def test_the_row_of_a_deleted_node_is_reused_without_its_old_amounts() -> None:
    cluster = cluster_with(node("old", gpu=4), pod("a", on="old", gpu=2))

    delete(cluster, node("old", gpu=4))
    add(cluster, node("new"))

    assert view(cluster.state) == view(cluster_with(pod("a", on="old", gpu=2), node("new")).state)
    assert len(cluster.state.nodes.nodes) == 1


@pytest.mark.parametrize("kind", ["node", "group", "request", "pending pod"])
def test_objects_of_another_node_pool_are_ignored(kind: str) -> None:
    label = {NODE_POOL_LABEL: "other"}
    engine = engine_with(node("n"), *gang("g", 1))
    other = {
        "node": node("m", cpu=64, labels=label),
        "group": PodGroup(metadata=kube.Meta(name="h", namespace=NAMESPACE, labels=label)),
        "request": request("r", {"uid-x": "m"}, labels=label),
        "pending pod": pod("p", labels=label),
    }[kind]
    add(engine.cluster, other)

    assert plan(engine) == {"g-0": "n"}
    assert set(engine.cluster.state.nodes.rows) == {"n"}
    assert set(engine.cluster.groups) == {JobKey(NAMESPACE, "g", True)}
    assert engine.cluster.holds.statements == {}


def test_pods_that_differ_in_volume_names_alone_have_one_shape() -> None:
    cluster = cluster_with(
        pod("a", volumes=[podspec.Volume(name="kube-api-access-x7d2k")]),
        pod("b", volumes=[podspec.Volume(name="kube-api-access-9hq4z")]),
        pod("c", volumes=[podspec.Volume(name="data", ephemeral={})]),
    )
    a, b, c = (cluster.state.tasks[Uid(f"uid-{name}")].shape for name in "abc")

    assert a is b
    assert a is not c


def test_a_deleted_and_recreated_queue_holds_the_same_amounts() -> None:
    running = pod("a", on="n", queue="q")
    engine = engine_with(node("n"), running, queue("q", cpu=1), pod("b", queue="q"))

    delete(engine.cluster, queue("q", cpu=1))
    assert plan(engine) == {}
    assert report_of(engine, "b").reason == "QueueDoesNotExist"
    add(engine.cluster, queue("q", cpu=1))

    assert plan(engine) == {}
    assert report_of(engine, "b").reason == "OverLimit"


def changes_plans(cluster: Cluster, item: kube.KubeObject) -> bool:
    return cluster.apply(Change(EventType.MODIFIED, item, None))


def test_events_that_a_plan_caused_trigger_no_new_cycle() -> None:
    cluster = cluster_with(node("n"), node("m"), pod("a"), pod("b"))
    cluster.apply(Change(EventType.ADDED, request("r", {"uid-a": "n", "uid-b": "n"}), None))

    assert not changes_plans(cluster, pod("a", on="n"))
    assert not changes_plans(cluster, pod("a", on="n"))
    assert not changes_plans(cluster, node("n"))
    bound = request("r", {"uid-a": "n", "uid-b": "n"}, phase="Succeeded", bound=["uid-a", "uid-b"])
    assert not changes_plans(cluster, bound)
    assert status_of(cluster, "a") == (TaskStatus.RUNNING, "n")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(pod("a", on="m"), id="a pod is bound elsewhere"),
        pytest.param(pod("a", on="n", phase="Failed"), id="a pod ends"),
        pytest.param(pod("c"), id="a pod is created"),
        pytest.param(request("r", {"uid-a": "n"}, phase="Failed"), id="a request fails"),
        pytest.param(node("n", ready=False), id="a node is lost"),
        pytest.param(node("m", 9), id="a node grows"),
        pytest.param(queue("other"), id="a queue is created"),
        pytest.param(group("other", 1), id="a gang is created"),
    ],
)
def test_events_that_no_plan_caused_trigger_a_new_cycle(change: kube.KubeObject) -> None:
    cluster = cluster_with(node("n"), node("m"), pod("a"), request("r", {"uid-a": "n"}))

    assert changes_plans(cluster, change)


def test_an_invalid_value_is_reported_on_the_pod() -> None:
    labels = {"scheduling.bindery.dev/skip-grouper": "yes"}
    cluster = cluster_with(pod("a", labels=labels), pod("fine"))

    (problem,) = cluster.problems
    assert (problem.kind, problem.meta.name, problem.reason) == ("Pod", "a", "InvalidValue")
    assert problem.message.endswith("'yes' means nothing: it must be true or false")


def test_an_unknown_key_is_reported_once_on_the_pod() -> None:
    misspelt = {"scheduling.bindery.dev/pod-group": "g"}
    cluster = cluster_with(pod("a", labels=misspelt), pod("fine"))

    (problem,) = cluster.problems
    assert (problem.kind, problem.meta.name, problem.reason) == ("Pod", "a", "UnknownKey")
    assert problem.message.endswith("has no effect: it must be an annotation")
    modify(cluster, pod("a", labels=misspelt))
    assert len(cluster.problems) == 1
    modify(cluster, pod("a", labels={**misspelt, "more": "1"}))
    assert len(cluster.problems) == 2


def test_the_deletion_of_a_pod_group_reports_the_pods_that_keep_running() -> None:
    bound = pod("a", group="g", on="n", charged="q")
    cluster = cluster_with(node("n"), group("g", 1, "q"), bound, group("gone", 1))

    delete(cluster, group("g", 1, "q"), group("gone", 1))
    cluster.note_time(NOW)
    assert not cluster.problems
    cluster.note_time(NOW + 60)
    cluster.note_time(NOW + 120)

    (problem,) = cluster.problems
    assert (problem.kind, problem.meta.name, problem.reason) == ("PodGroup", "g", "PodsRunOn")
    assert "1 pod still runs, charged to queue q" in problem.message


def test_the_deletion_of_a_pod_group_with_its_pods_reports_no_problem() -> None:
    bound = pod("a", group="g", on="n", charged="q")
    cluster = cluster_with(node("n"), group("g", 1, "q"), bound)

    delete(cluster, group("g", 1, "q"), bound)
    cluster.note_time(NOW + 60)

    assert not cluster.problems
