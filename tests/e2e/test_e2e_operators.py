"""JobSet's and LeaderWorkerSet's own controllers: stages, leaders and exclusive domains."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from administrator import Plain
from operators import JOBSET, LWS, running
from support import Corner, scheduler_configuration, wait_for
from traps import ready
from workloads import Maker

from bindery.api import names
from bindery.api.configuration import GrouperExpectation
from bindery.controlplane.components import Component, Components
from bindery.controlplane.install import Installation
from bindery.kube.objects import Pod
from bindery.kube.resources import NODES, Resource

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", True, Plain)
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
        pytest.skip("this cluster's API server cannot call webhooks on this machine")
    with running(installation.control_plane, [JOBSET, LWS]):
        yield


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


async def test_stages_of_a_job_set_run_one_after_the_other_to_its_end(maker: Maker) -> None:
    pipe = job_set(
        maker,
        "pipe",
        replicated(maker, "data", 1, 0.5),
        replicated(maker, "leader", 1, 5, **after("data", "Complete")),
        replicated(maker, "workers", 3, 1, **after("leader", "Ready")),
    )
    await maker.create(JOB_SETS, pipe)

    async def complete() -> bool:
        found = await maker.corner.client.get(JOB_SETS, "pipe", maker.corner.namespace)
        conditions = (found.status or {}).get("conditions", ())
        return "Completed" in {each["type"] for each in conditions if each["status"] == "True"}

    (group,) = await maker.wait_groups(1)
    stages = {each["name"]: each.get("after") for each in group.spec["subGroups"]}
    assert stages["leader"] == [{"subGroup": "data", "condition": "Complete"}]
    assert stages["workers"] == [{"subGroup": "leader", "condition": "Ready"}]
    await wait_for(complete, "the JobSet is complete")
    assert len(await maker.groups()) == 1


async def test_each_job_of_an_exclusive_job_set_has_a_rack_of_its_own(maker: Maker) -> None:
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": names.RACK_LABEL}
    jobs = replicated(maker, "slices", 2, 60, replicas=2)
    await maker.create(JOB_SETS, job_set(maker, "exclusive", jobs, annotations=exclusive))

    pods = await maker.wait_bound("slices", 4)

    await own_racks(maker, pods, "jobset.sigs.k8s.io/job-index")


async def test_workers_come_when_their_leader_is_ready_and_stay_in_its_rack(maker: Maker) -> None:
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
