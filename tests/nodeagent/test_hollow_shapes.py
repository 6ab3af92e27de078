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
        HOLLOW_LABEL: "true",
        names.ZONE_LABEL: "zone-0",
        names.RACK_LABEL: "zone-0-rack-0",
        names.GPU_MODEL_LABEL: "NVIDIA-A100",
        names.NODE_POOL_LABEL: "a",
    }


def test_racks_are_blocks_of_nodes_and_zones_are_blocks_of_racks() -> None:
    nodes = expand((shape(count=8, racks=4, zones=2),))

    racks = [node.labels[names.RACK_LABEL] for node in nodes]
    assert racks == [
        f"zone-{zone}-rack-{rack}" for zone in (0, 1) for rack in (0, 1) for _ in range(2)
    ]


@pytest.mark.parametrize(
    ("count", "racks", "zones"), [(7, 3, 2), (100, 7, 3), (3, 4, 2), (5, 5, 5)]
)
def test_a_rack_lies_in_one_zone_whatever_the_numbers(count: int, racks: int, zones: int) -> None:
    nodes = expand((shape(count=count, racks=racks, zones=zones),))

    zone_of: dict[str, set[str]] = {}
    for node in nodes:
        zone_of.setdefault(node.labels[names.RACK_LABEL], set()).add(node.labels[names.ZONE_LABEL])
    assert all(len(found) == 1 for found in zone_of.values())
    assert len(zone_of) == min(count, racks)


def test_without_racks_and_zones_there_are_no_such_labels() -> None:
    (node, *_) = expand((shape(racks=0, zones=0),))

    assert names.RACK_LABEL not in node.labels
    assert names.ZONE_LABEL not in node.labels


def test_a_node_without_gpus_has_no_gpu_model() -> None:
    (node, *_) = expand((shape(gpus=0),))

    assert names.GPU_RESOURCE not in node.resources
    assert names.GPU_MODEL_LABEL not in node.labels


def test_no_label_of_the_user_takes_away_the_hollow_mark() -> None:
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
def test_a_mistake_in_a_file_is_reported_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    with pytest.raises(yamlfile.FileError) as caught:
        yamlfile.load(HollowNodesFile, write(tmp_path, text))

    assert message in caught.value.message
    assert caught.value.line == line


def test_more_nodes_than_addresses_are_refused() -> None:
    with pytest.raises(ValidationError, match="nodes fit one process"):
        HollowNodesFile(shapes=(shape(count=100_000), shape(count=100_000, name_prefix="b-")))
