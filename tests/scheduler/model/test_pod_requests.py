"""Requests of pods, and pods that wait because a feature they request is not supported."""

from typing import Any

import msgspec
import pytest

from bindery.api.quantity import QuantityError
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podspec import (
    Affinity,
    Container,
    ContainerPort,
    PersistentVolumeClaimSource,
    PodAffinity,
    PodAffinityTerm,
    PodResourceClaim,
    PodSpec,
    ResourceRequirements,
    TopologySpreadConstraint,
    Volume,
    WeightedPodAffinityTerm,
)
from bindery.scheduler.model.resources import pod_amounts
from tests.scheduler.schedulerworld import (
    configuration,
    engine_with,
    gang,
    modify,
    node,
    plan,
    pod,
    report_of,
    requirements,
)


def container(cpu: str, *, sidecar: bool = False, **more: str) -> Container:
    return Container(
        resources=requirements({"cpu": cpu, **more}),
        restart_policy="Always" if sidecar else None,
    )


MIB = 2**20
CASES: dict[str, tuple[PodSpec, dict[str, int]]] = {
    "nothing": (PodSpec(containers=[Container()]), {}),
    "containers add up": (
        PodSpec(containers=[container("1", memory="1Mi"), container("500m")]),
        {"cpu": 1500, "memory": MIB},
    ),
    "an init container that needs more counts alone": (
        PodSpec(containers=[container("1")], init_containers=[container("3"), container("2")]),
        {"cpu": 3000},
    ),
    "an init container that needs less does not count": (
        PodSpec(containers=[container("4")], init_containers=[container("3")]),
        {"cpu": 4000},
    ),
    "each resource has its own peak": (
        PodSpec(
            containers=[container("4", memory="1Mi")],
            init_containers=[container("1", memory="3Mi")],
        ),
        {"cpu": 4000, "memory": 3 * MIB},
    ),
    "a sidecar runs beside the containers": (
        PodSpec(containers=[container("1")], init_containers=[container("2", sidecar=True)]),
        {"cpu": 3000},
    ),
    "an init container runs beside the sidecars before it": (
        PodSpec(
            containers=[container("1")],
            init_containers=[container("2", sidecar=True), container("4")],
        ),
        {"cpu": 6000},
    ),
    "an init container does not run beside the sidecars after it": (
        PodSpec(
            containers=[container("1")],
            init_containers=[container("4"), container("2", sidecar=True)],
        ),
        {"cpu": 4000},
    ),
    "overhead is added": (
        PodSpec(
            containers=[container("1")],
            init_containers=[container("2")],
            overhead={"cpu": "250m", "memory": "1Mi"},
        ),
        {"cpu": 2250, "memory": MIB},
    ),
    "a request of the whole pod replaces its containers'": (
        PodSpec(
            containers=[container("1", memory="1Mi")],
            init_containers=[container("8")],
            resources=requirements({"cpu": "3"}),
            overhead={"cpu": "1"},
        ),
        {"cpu": 4000, "memory": MIB},
    ),
    "a limit stands for a request that is not there": (
        PodSpec(
            containers=[
                Container(
                    resources=ResourceRequirements(
                        requests={"cpu": "1"}, limits={"cpu": "2", "nvidia.com/gpu": "4"}
                    )
                )
            ]
        ),
        {"cpu": 1000, "nvidia.com/gpu": 4000},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_request_of_a_pod_combines_its_containers(case: str) -> None:
    spec, amounts = CASES[case]

    assert pod_amounts(spec) == {**amounts, "pods": 1}


def resized(spec_cpu: str, in_effect: str, allocated: str, reason: str = "") -> kube.Pod:
    """Return a bound pod of which the node reports resources; `reason`: why a resize waits."""
    status = kube.ContainerStatus(
        name="main",
        resources=ResourceRequirements(requests={"cpu": in_effect}),
        allocated_resources={"cpu": allocated},
    )
    conditions = [kube.Condition(type="PodResizePending", status="True", reason=reason)]
    bound = pod("old", on="n", containers=[named_container(spec_cpu)])
    told = msgspec.structs.replace(
        bound.status, container_statuses=[status], conditions=conditions if reason else None
    )
    return msgspec.structs.replace(bound, status=told)


def named_container(cpu: str) -> Container:
    return Container(name="main", resources=ResourceRequirements(requests={"cpu": cpu}))


@pytest.mark.parametrize(
    ("spec_cpu", "in_effect", "allocated", "reason", "held"),
    [
        ("2", "2", "2", "", 2),
        ("4", "2", "2", "", 4),
        ("1", "3", "1", "", 3),
        ("1", "1", "2", "", 2),
        ("5", "2", "2", "Deferred", 5),
        ("7", "2", "3", "Infeasible", 3),
        ("2000m", "2", "2", "", 2),
    ],
)
def test_a_pod_being_resized_counts_with_its_largest_request(
    spec_cpu: str, in_effect: str, allocated: str, reason: str, held: int
) -> None:
    engine = engine_with(node("n", cpu=8), resized(spec_cpu, in_effect, allocated, reason))
    state = engine.cluster.state

    cpu = state.axis.index("cpu")
    assert int(state.nodes.idle[cpu, state.nodes.rows["n"]]) == (8 - held) * 1000


def test_a_resize_counts_when_the_node_reports_it() -> None:
    engine = engine_with(node("n", cpu=8), resized("2", "2", "2"))
    state = engine.cluster.state

    modify(engine.cluster, resized("2", "5", "5"))

    cpu = state.axis.index("cpu")
    assert int(state.nodes.idle[cpu, state.nodes.rows["n"]]) == 3000


@pytest.mark.parametrize("text", ["lots", "9223372036854775807"])
def test_a_request_that_cannot_be_represented_is_an_error(text: str) -> None:
    spec = PodSpec(containers=[container("1", memory=text), container("1", memory=text)])

    with pytest.raises(QuantityError):
        pod_amounts(spec)


def test_pods_with_impossible_requests_do_not_overflow_a_node() -> None:
    huge = [pod(f"h{i}", on="n", more={"memory": "4Ei"}) for i in range(4)]
    engine = engine_with(node("n"), *huge, pod("p", more={"memory": "128Gi"}))

    assert plan(engine) == {}
    assert (
        report_of(engine, "p").message
        == "0/1 nodes are available: 1 have less memory in all than requested"
    )


SOFT_SPREAD = TopologySpreadConstraint(when_unsatisfiable="ScheduleAnyway")
TERM = PodAffinityTerm(topology_key="zone")
PREFERRED = WeightedPodAffinityTerm(weight=1, pod_affinity_term=TERM)
SUPPORTED_BY_PLUGINS: dict[str, dict[str, Any]] = {
    "required pod affinity": {"affinity": Affinity(pod_affinity=PodAffinity(required=[TERM]))},
    "required pod anti-affinity": {
        "affinity": Affinity(pod_anti_affinity=PodAffinity(required=[TERM]))
    },
    "topology spread constraints": {"topology_spread_constraints": [TopologySpreadConstraint()]},
    "host ports": {"containers": [Container(ports=[ContainerPort(host_port=80)])]},
    "resource claims": {"resource_claims": [PodResourceClaim(name="gpu")]},
    "persistent volume claims or in-tree disks": {
        "volumes": [Volume(persistent_volume_claim=PersistentVolumeClaimSource(claim_name="c"))]
    },
}
OPTIONAL = ("volumes", "dra", "podaffinity", "topologyspread", "hostports")


@pytest.mark.parametrize("what", SUPPORTED_BY_PLUGINS)
def test_a_pod_waits_with_the_reason_if_its_plugin_is_not_configured(what: str) -> None:
    plain = [each for each in configuration().plugins if each.name not in OPTIONAL]
    odd = pod("odd", **SUPPORTED_BY_PLUGINS[what])
    engine = engine_with(node("n"), odd, pod("plain"), plugins=plain)

    assert plan(engine) == {"plain": "n"}
    report = report_of(engine, "odd")
    assert report.reason == "NotSupported"
    assert report.message == f"pod odd: it asks for {what}: no configured plugin supports it"


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": Affinity(pod_affinity=PodAffinity(), pod_anti_affinity=PodAffinity())},
        {"topology_spread_constraints": [SOFT_SPREAD]},
        {"containers": [Container(ports=[ContainerPort()])]},
        {"volumes": [Volume(name="token")]},
    ],
)
def test_a_preference_without_its_plugin_does_not_keep_a_pod_waiting(spec: dict[str, Any]) -> None:
    assert plan(engine_with(node("n"), pod("p", **spec))) == {"p": "n"}


IGNORED: dict[str, dict[str, Any]] = {
    "preferred pod affinity": {
        "affinity": Affinity(pod_affinity=PodAffinity(preferred=[PREFERRED]))
    },
    "preferred pod anti-affinity": {
        "affinity": Affinity(pod_anti_affinity=PodAffinity(preferred=[PREFERRED]))
    },
    "topology spread constraints with ScheduleAnyway": {
        "topology_spread_constraints": [SOFT_SPREAD]
    },
}


@pytest.mark.parametrize("what", IGNORED)
def test_the_gang_reports_a_preference_that_no_configured_plugin_serves(what: str) -> None:
    plain = [each for each in configuration().plugins if each.name not in OPTIONAL]
    placed = engine_with(node("n"), *gang("g", 2, **IGNORED[what]), plugins=plain)
    waits = engine_with(node("n", cpu=1), *gang("g", 2, **IGNORED[what]), plugins=plain)

    assert len(plan(placed)) == 2
    assert plan(waits) == {}
    assert report_of(placed, "g").message == f"ignored: {what}"
    assert report_of(waits, "g").message.endswith(f"; ignored: {what}")


def test_a_pod_with_an_unreadable_request_waits_with_the_reason() -> None:
    engine = engine_with(node("n"), pod("odd", more={"memory": "lots"}), pod("plain"))

    assert plan(engine) == {"plain": "n"}
    report = report_of(engine, "odd")
    assert report.reason == "InvalidRequest"
    assert report.message.startswith("pod odd: its requests cannot be read: container ")
    assert report.message.endswith(": memory: 'lots' is not a Kubernetes quantity")
