"""Workloads with pods in stages, with leaders, and with exclusive domains.

JobSet's and LeaderWorkerSet's own controllers run; the tests play those of MPIJob, RayJob and
TrainJob (see playedoperators.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bindery.api import names
from bindery.api.configuration import GrouperExpectation
from bindery.kube.objects.resources import NODES, PODS, Resource
from bindery.kube.objects.watched import Pod
from devcluster.components import Component, Components
from devcluster.install import Installation
from tests.administrator import Plain
from tests.e2e.operators import JOBSET, LWS, install_definitions, running
from tests.e2e.playedoperators import JOB_SETS, KubeRay, MpiOperator, train_job
from tests.e2e.support import Corner, scheduler_configuration, wait_for
from tests.e2e.traps import ready
from tests.e2e.workloads import JOBS, STATEFUL_SETS, Maker
from tests.required import lacking
from tests.sizes import sample

LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", True, Plain
)
RACKS = 2

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.usefixtures("operators", "grouper", "scheduler", "binder", "nodes"),
]


@pytest.fixture(scope="module")
def operators(installation: Installation) -> Iterator[None]:
    if installation.control_plane.is_shared:
        lacking("this cluster's API server cannot call webhooks on this machine")
    plane = installation.control_plane
    # The MPIJob of the training operator is another version of the same kind.
    plane.kubectl("delete", "crd", "mpijobs.kubeflow.org", "--ignore-not-found")
    with running(plane, [JOBSET, LWS]):
        operators = ["MPI operator", "KubeRay", "Kubeflow trainer"]
        install_definitions(plane, operators, ["mpijobs", "rayjobs", "rayclusters", "trainjobs"])
        yield
    plane.kubectl("delete", "crd", "mpijobs.kubeflow.org")


@pytest.fixture(scope="module")
def grouper(module_components: Components) -> Component:
    return module_components.start_grouper().wait_ready()


@pytest.fixture(scope="module")
def scheduler(module_components: Components, pool: str) -> Component:
    configuration = scheduler_configuration(pool).model_copy(
        update={"grouper": GrouperExpectation(wait_for_groups=True)}
    )
    return module_components.start_scheduler(configuration).wait_ready()


@pytest.fixture
async def nodes(corner: Corner, components: Components) -> None:
    """Four hollow nodes in two racks, with two cores each."""
    options = [f"--node-pool={corner.pool}", f"--name-prefix={corner.namespace}-", "--cpu=2"]
    agent = components.start_hollow_nodes(4, [*options, f"--racks={RACKS}", "--remove-on-exit"])
    await ready(agent)


@pytest.fixture
def maker(corner: Corner) -> Maker:
    return Maker(corner)


def job_set(maker: Maker, name: str, *jobs: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, **metadata},
        "spec": {"replicatedJobs": list(jobs)},
    }


def replicated(
    maker: Maker, name: str, size: int, seconds: float, **further: Any
) -> dict[str, Any]:
    runs = {names.HOLLOW_RUN_SECONDS_ANNOTATION: str(seconds)}
    job = maker.job(name, size, annotations=runs)
    return {"name": name, "template": {"spec": job["spec"]}, **further}


def after(name: str, status: str) -> dict[str, Any]:
    return {"dependsOn": [{"name": name, "status": status}]}


@pytest.mark.long("more than a minute")
async def test_stages_of_a_job_set_run_one_after_the_other_to_completion(maker: Maker) -> None:
    pipe = job_set(
        maker,
        "pipe",
        replicated(maker, "data", 1, 0.5),
        replicated(maker, "leader", 1, 5, **after("data", "Complete")),
        replicated(maker, "workers", 3, 1, **after("leader", "Ready")),
    )
    await maker.create(JOB_SETS, pipe)

    (group,) = await maker.wait_groups(1)
    stages = {each["name"]: each.get("after") for each in group.spec["subGroups"]}
    assert stages["leader"] == [{"subGroup": "data", "condition": "Complete"}]
    assert stages["workers"] == [{"subGroup": "leader", "condition": "Ready"}]
    await wait_complete(maker, "pipe")
    assert len(await maker.groups()) == 1


async def wait_complete(maker: Maker, name: str) -> None:
    """Wait until the JobSet is complete."""

    async def complete() -> bool:
        found = await maker.corner.client.get(JOB_SETS, name, maker.corner.namespace)
        conditions = (found.status or {}).get("conditions", ())
        return "Completed" in {each["type"] for each in conditions if each["status"] == "True"}

    await wait_for(complete, f"the JobSet {name} is complete")


async def test_the_jobs_of_a_job_set_in_order_start_one_after_the_other(maker: Maker) -> None:
    in_order = job_set(
        maker, "order", replicated(maker, "head", 1, 4), replicated(maker, "rest", 3, 2)
    )
    in_order["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    await maker.create(JOB_SETS, in_order)

    (group,) = await maker.wait_groups(1)
    assert group.spec.get("minMember", 1) == 1
    stages = {each["name"]: each.get("after") for each in group.spec["subGroups"]}
    assert stages["head"] is None
    assert stages["rest"] == [{"subGroup": "head", "condition": "Ready"}]
    await wait_complete(maker, "order")
    assert len(await maker.groups()) == 1


async def test_a_train_job_runs_its_initialiser_and_then_its_nodes(maker: Maker) -> None:
    runtime = job_set(
        maker,
        "tune",
        replicated(maker, "dataset-initializer", 1, 0.5),
        replicated(maker, "node", 2, 1, **after("dataset-initializer", "Complete")),
    )
    queue = await maker.corner.add_queue("research", {})
    await train_job(maker, "tune", queue, runtime)

    (group,) = await maker.wait_groups(1)
    assert group.spec["queue"] == queue
    assert "TrainJob/tune" in group.metadata.annotations[names.SOURCES_ANNOTATION]
    stages = {each["name"]: each.get("after") for each in group.spec["subGroups"]}
    assert stages["node"] == [{"subGroup": "dataset-initializer", "condition": "Complete"}]
    await wait_complete(maker, "tune")


async def test_each_job_of_an_exclusive_job_set_has_its_own_rack(maker: Maker) -> None:
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": names.RACK_LABEL}
    jobs = replicated(maker, "slices", 2, 60, replicas=2)
    await maker.create(JOB_SETS, job_set(maker, "exclusive", jobs, annotations=exclusive))

    pods = await maker.wait_bound("slices", 4)

    await own_racks(maker, pods, "jobset.sigs.k8s.io/job-index")


async def test_workers_start_when_their_leader_is_ready_and_run_in_its_rack(maker: Maker) -> None:
    template = maker.template("serve")
    exclusive = {"leaderworkerset.sigs.k8s.io/exclusive-topology": names.RACK_LABEL}
    serve = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "annotations": exclusive},
        "spec": {
            "replicas": 2,
            "startupPolicy": "LeaderReady",
            "leaderWorkerTemplate": {"size": 3, "workerTemplate": template},
        },
    }
    await maker.create(LEADER_WORKER_SETS, serve)

    pods = await maker.wait_bound("serve", 6)

    assert len(await maker.groups()) == 2
    await own_racks(maker, pods, "leaderworkerset.sigs.k8s.io/group-index")


async def test_each_segment_of_a_leader_first_group_has_its_own_rack(
    maker: Maker,
) -> None:
    levels = {names.SEGMENT_REQUIRED_KEY: names.RACK_LABEL}
    serve = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "annotations": levels},
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderReady",
            "leaderWorkerTemplate": {
                "size": 4,
                "subGroupPolicy": {"subGroupSize": 2},
                "workerTemplate": maker.template("serve", cpu="2"),
            },
        },
    }
    await maker.create(LEADER_WORKER_SETS, serve)

    pods = await maker.wait_bound("serve", 4)

    await own_racks(maker, pods, "leaderworkerset.sigs.k8s.io/subgroup-index")


async def create_rival(maker: Maker) -> None:
    """Create a Job that needs two of the four nodes, and wait until it was refused."""
    await maker.create(JOBS, maker.job("rival", 2, cpu="2"))

    async def refused() -> bool:
        conditions = [c for pod in await maker.pods("rival") for c in pod.status.conditions or ()]
        return len([c for c in conditions if (c.type, c.status) == ("PodScheduled", "False")]) == 2

    await wait_for(refused, "the rival waits")


async def rival_waits(maker: Maker) -> bool:
    return not any(pod.spec.node_name for pod in await maker.pods("rival"))


@pytest.mark.parametrize("operator", sample(1, [MpiOperator, KubeRay]))
async def test_the_last_pod_gets_its_reserved_room_although_another_gang_waits(
    maker: Maker, operator: type[MpiOperator | KubeRay]
) -> None:
    """The launcher of an MPIJob, and the submitter of a RayJob."""
    played = operator(maker)
    owner = await played.start(2)
    await maker.wait_bound("first", 2)
    (group,) = await maker.groups()
    assert group.metadata.owner_references[0].uid == owner.metadata.uid
    assert group.spec["minMember"] == 2
    await create_rival(maker)

    await played.go_on(owner)

    await maker.wait_bound("later", 1)
    assert await rival_waits(maker)
    if isinstance(played, KubeRay):
        await played.scale_up()
        await maker.wait_bound("added", 1)
        assert await rival_waits(maker)
    assert len(await maker.groups()) == 2


async def test_room_for_all_pods_of_an_ordered_stateful_set_is_reserved(maker: Maker) -> None:
    ring = maker.server("StatefulSet", "ring", 3, cpu="2")
    ring["metadata"]["annotations"] = {names.MIN_MEMBER_KEY: "3"}
    ring["spec"]["podManagementPolicy"] = "OrderedReady"
    await maker.create(STATEFUL_SETS, ring)
    await maker.wait_groups(1)

    await create_rival(maker)

    await maker.wait_bound("ring", 3)
    assert await rival_waits(maker)


async def test_a_restarted_pod_waits_for_the_rack_of_its_gang(maker: Maker) -> None:
    client, namespace = maker.corner.client, maker.corner.namespace
    train = maker.server("StatefulSet", "train", 2, cpu="2")
    rack = {names.MIN_MEMBER_KEY: "2", names.TOPOLOGY_REQUIRED_KEY: names.RACK_LABEL}
    train["metadata"]["annotations"] = rack
    await maker.create(STATEFUL_SETS, train)
    lost, kept = await maker.wait_bound("train", 2)

    await client.patch(NODES, lost.spec.node_name, {"spec": {"unschedulable": True}})
    await client.delete(PODS, lost.metadata.name, namespace)

    async def refused() -> bool:
        pods = await maker.pods("train")
        conditions = [
            c for pod in pods if not pod.spec.node_name for c in pod.status.conditions or ()
        ]
        return any((c.type, c.status) == ("PodScheduled", "False") for c in conditions)

    await wait_for(refused, "the new pod waits, although the other rack is free")
    await client.patch(NODES, lost.spec.node_name, {"spec": {"unschedulable": None}})
    nodes = {pod.spec.node_name for pod in await maker.wait_bound("train", 2)}
    assert nodes == {lost.spec.node_name, kept.spec.node_name}


async def own_racks(maker: Maker, pods: list[Pod], label: str) -> None:
    """Check that pods with one value of `label` share a rack, and no others are there."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        node = await maker.corner.client.get(NODES, pod.spec.node_name)
        rack = node.metadata.labels[names.RACK_LABEL]
        found.setdefault(pod.metadata.labels[label], set()).add(rack)
    racks = [racks for racks in found.values() if len(racks) == 1]
    assert len(racks) == len(found) == RACKS, found
    assert racks[0] != racks[1], found
