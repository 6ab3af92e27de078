from pathlib import Path

import pytest
from pydantic import ValidationError

from bindery.api import names, yamlfile
from bindery.nodeagent.shapes import HOLLOW_LABEL, HollowNodesFile, NodeShape, expand


def shape(**fields: object) -> NodeShape:
    return NodeShape.model_validate({"count": 4, **fields})


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    return file


def refused(tmp_path: Path, text: str) -> yamlfile.FileError:
    """Return the error with which a file of nodes with `text` is refused."""
    with pytest.raises(yamlfile.FileError) as caught:
        yamlfile.load(HollowNodesFile, write(tmp_path, text))
    return caught.value


def test_a_node_has_the_resources_and_labels_of_its_shape() -> None:
    (node, *_) = expand(
        (shape(cpu=32, memory="256Gi", pods=50, gpus=4, gpu_model="NVIDIA-A100", node_pool="a"),)
    )

    assert node.name == "hollow-0"
    assert node.resources == {
        "cpu": "32",
        "memory": "256Gi",
        "ephemeral-storage": "1Ti",
        "pods": "50",
        "nvidia.com/gpu": "4",
    }
    assert node.labels == {
        names.HOSTNAME_LABEL: "hollow-0",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        HOLLOW_LABEL: "true",
        names.ZONE_LABEL: "zone-0",
        names.RACK_LABEL: "zone-0-rack-0",
        names.GPU_MODEL_LABEL: "NVIDIA-A100",
        names.NODE_POOL_LABEL: "a",
    }


def test_racks_are_blocks_of_nodes_and_zones_blocks_of_racks() -> None:
    nodes = expand((shape(count=8, racks=4, zones=2),))

    racks = [node.labels[names.RACK_LABEL] for node in nodes]
    assert racks == [
        f"zone-{zone}-rack-{rack}" for zone in (0, 1) for rack in (0, 1) for _ in range(2)
    ]


@pytest.mark.parametrize(
    ("count", "racks", "zones"), [(7, 3, 2), (100, 7, 3), (3, 4, 2), (5, 5, 5)]
)
def test_a_rack_is_in_one_zone_for_any_numbers(count: int, racks: int, zones: int) -> None:
    nodes = expand((shape(count=count, racks=racks, zones=zones),))

    zone_of: dict[str, set[str]] = {}
    for node in nodes:
        zone_of.setdefault(node.labels[names.RACK_LABEL], set()).add(node.labels[names.ZONE_LABEL])
    assert all(len(found) == 1 for found in zone_of.values())
    assert len(zone_of) == min(count, racks)


def test_nodes_without_racks_and_zones_have_no_such_labels() -> None:
    (node, *_) = expand((shape(racks=0, zones=0),))

    assert names.RACK_LABEL not in node.labels
    assert names.ZONE_LABEL not in node.labels


def test_a_node_without_gpus_has_no_gpu_model() -> None:
    (node, *_) = expand((shape(gpus=0),))

    assert names.GPU_RESOURCE not in node.resources
    assert names.GPU_MODEL_LABEL not in node.labels


def test_labels_of_the_user_cannot_remove_the_hollow_mark() -> None:
    (node, *_) = expand((shape(labels={HOLLOW_LABEL: "false", "team": "a"}),))

    assert (node.labels[HOLLOW_LABEL], node.labels["team"]) == ("true", "a")


def test_nodes_of_several_shapes_differ_in_name_and_address(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "shapes:\n"
        "- {count: 300, namePrefix: gpu-}\n"
        "- {count: 2, namePrefix: cpu-, gpus: 0, resources: {rdma/hca: 8}}\n",
    )

    nodes = expand(yamlfile.load(HollowNodesFile, file).shapes)

    assert len({node.name for node in nodes}) == len({node.address for node in nodes}) == 302
    assert nodes[-1].resources["rdma/hca"] == "8"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("shapes:\n- count: 1\n  gpu: 2\n", 3, "gpu"),
        ("shapes:\n- count: 0\n", 2, "count"),
        ("shapes:\n- count: 1\n  memory: much\n", 3, "'much' is not a Kubernetes quantity"),
        ("shapes:\n- count: 1\n  cpu: -1\n", 3, "negative"),
        ("shapes:\n- count: 1\n- count: 2\n", 1, "two shapes make a node hollow-0"),
        ("shapes:\n- count: 1\n  namePrefix: GPU_\n", 3, "cannot begin a node's name"),
        ("shapes:\n- count: 1\n  labels: {team: a b}\n", 3, "not a label value"),
        ("shapes:\n- count: 1\n  resources: {cpu: 8}\n", 2, "cpu has its own key"),
        ("shapes:\n- count: 9\n  racks: 2\n  zones: 3\n", 2, "3 zones need at least as many racks"),
        ("shapes: []\n", 1, "shapes"),
    ],
)
def test_an_error_in_a_file_is_reported_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    error = refused(tmp_path, text)

    assert message in error.message
    assert error.line == line


def test_more_nodes_than_addresses_are_refused() -> None:
    with pytest.raises(ValidationError, match="nodes fit one process"):
        HollowNodesFile(shapes=(shape(count=100_000), shape(count=100_000, name_prefix="b-")))


NUMA = "shapes:\n- count: 1\n  cpu: 36\n  numa:\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            NUMA + "    sockets: 9\n  kubelet:\n    topologyManagerPolicy: restricted\n",
            2,
            "unsupported on machines with more than 8 NUMA Nodes",
        ),
        (NUMA + "    sockets: 5\n", 2, "5 NUMA zones with 1 threads a core need a multiple of 5"),
        (NUMA + "    sockets: 0\n", 5, "greater than or equal to 1"),
        (
            NUMA + "    sockets: 2\n    devices: {rdma/hca: {2: 1}}\n",
            4,
            "devices: rdma/hca: NUMA node 2 does not exist on this machine",
        ),
        (NUMA + "    memory: {0: 1Gi, 2: 1Gi}\n", 4, "one amount for each of the 1 zones"),
        (NUMA + "    devices:\n      rdma/hca:\n        0: -1\n", 7, "greater than or equal to 0"),
        (NUMA + "    hugePages: {3k: {0: 1}}\n", 5, "not a size of huge pages"),
        (NUMA + "    sockets: 2\n    distances: [[10, 20]]\n", 4, "2 rows of 2 numbers"),
        (
            "shapes:\n- count: 1\n  gpus: 4\n  numa:\n    devices: {nvidia.com/gpu: {0: 3}}\n",
            2,
            "3 GPUs in NUMA zones, but gpus is 4",
        ),
        ("shapes:\n- count: 1\n  memory: -1Gi\n", 3, "negative"),
    ],
)
def test_impossible_hardware_is_reported_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    error = refused(tmp_path, text)

    assert message in error.message
    assert error.line == line


@pytest.mark.parametrize(
    ("settings", "line", "message"),
    [
        ("cpuManagerPolicy: dynamic", 4, 'unknown policy: "dynamic"'),
        ("memoryManagerPolicy: static", 4, 'unknown policy: "static"'),
        ("memoryManagerPolicy: BestEffort", 4, 'policy "BestEffort" is not available'),
        ("topologyManagerPolicy: best", 4, 'unknown policy: "best"'),
        ("topologyManagerScope: node", 4, 'unknown scope: "node"'),
        ("topologyManagerPolicyOptions: {a: b}", 4, 'unknown Topology Manager Policy option: "a"'),
        ("cpuManagerPolicyOptions: {full: x}", 4, 'unknown CPU Manager Policy option: "full"'),
        ("reservedSystemCPUs: 3-1", 4, "3-1"),
        ("featureGates: {Some: true}", 4, "unrecognized feature gate: Some"),
        ("evictionHard: {memory.available: 200%}", 4, "'200%' is no percentage"),
        ("systemReserved: {cpu: -1}", 4, "negative"),
        ("cpuManagerPolicy: static", 2, "the static policy requires systemreserved.cpu"),
        ("memoryManagerPolicy: Static", 2, "you should specify the system reserved memory"),
        (
            "reservedMemory: [{numaNode: 3, limits: {memory: 1Gi}}], memoryManagerPolicy: Static",
            2,
            "references a NUMA node 3 that does not exist on this machine",
        ),
        ("systemReserved: {cpu: 65}", 2, "Expected capacity >= reservation"),
        (
            "cpuManagerPolicy: static, reservedSystemCPUs: '64'",
            2,
            "unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: 64",
        ),
    ],
)
def test_settings_that_no_kubelet_accepts_are_reported_with_its_message(
    tmp_path: Path, settings: str, line: int, message: str
) -> None:
    text = f"shapes:\n- count: 1\n  kubelet:\n    {{{settings}}}\n"

    error = refused(tmp_path, text)

    assert message in error.message
    assert error.line == line


def test_more_than_eight_zones_are_allowed_by_the_kubelets_option() -> None:
    settings = {
        "topologyManagerPolicy": "restricted",
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "9"},
    }

    nine = shape(cpu=36, numa={"sockets": 9}, kubelet=settings)

    assert len(nine.machine().config.machine.nodes) == 9


def test_reservations_are_deducted_from_the_allocatable_resources() -> None:
    (node,) = expand(
        (
            shape(
                count=1,
                cpu=32,
                memory="64Gi",
                numa={
                    "sockets": 2,
                    "hugePages": {"2Mi": {1: 512}},
                    "devices": {"rdma/hca": {1: 2}},
                },
                kubelet={
                    "systemReserved": {"cpu": "500m", "memory": "1Gi"},
                    "kubeReserved": {"cpu": "500m"},
                    "evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%"},
                },
            ),
        )
    )

    gib = 2**30
    assert node.resources["cpu"] == "32"
    assert node.allocatable["cpu"] == "31"
    assert node.allocatable["memory"] == str(64 * gib - gib - gib - gib)
    assert node.allocatable["hugepages-2Mi"] == node.resources["hugepages-2Mi"] == str(gib)
    assert node.allocatable["rdma/hca"] == node.resources["rdma/hca"] == "2"
    assert node.allocatable["ephemeral-storage"] == "989560463360"  # 10% in 32-bit floats
    assert node.allocatable["pods"] == "110"


def test_gpus_are_spread_over_the_zones_in_blocks() -> None:
    devices = shape(gpus=6, cpu=64, numa={"sockets": 4}).machine().devices["nvidia.com/gpu"]

    assert [one.numa_nodes for one in devices] == [(0,), (0,), (1,), (2,), (2,), (3,)]
    assert [one.id for one in devices][:2] == ["gpu-0", "gpu-1"]


def test_zones_can_have_unequal_memory() -> None:
    numa = {"sockets": 2, "memory": {0: "1Gi", 1: "3Gi"}}

    nodes = shape(cpu=2, memory="4Gi", numa=numa).machine().config.machine.nodes

    assert [node.memory_bytes for node in nodes] == [2**30, 3 * 2**30]


def test_devices_can_belong_to_no_zone() -> None:
    devices = shape(cpu=2, numa={"devices": {"rdma/hca": {-1: 2}}}).machine().devices["rdma/hca"]

    assert [one.numa_nodes for one in devices] == [None, None]
