"""HyperNodes from labels of nodes: the tree that the scheduler then has."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api.configuration import TOPOGRAPH_LEVELS
from bindery.grouper.networks import domains
from bindery.kube.objects.topology import HyperNode, HyperNodeSpec
from bindery.kube.objects.watched import Meta
from bindery.scheduler.model.hypernodes import HyperNodeTree

TOPOGRAPH = tuple(
    (f"network.topology.nvidia.com/{name}",)
    for name in ("accelerator", "block", "spine", "datacenter")
)


def labels(*values: str) -> dict[str, str]:
    """Return the labels of a node, from the closest level on; "" for none."""
    return {keys[0]: value for keys, value in zip(TOPOGRAPH, values, strict=False) if value}


def tree_of(nodes: list[dict[str, str]], levels: domains.Levels = TOPOGRAPH) -> HyperNodeTree:
    """Return the scheduler's tree over nodes with these labels."""
    tree = HyperNodeTree()
    for name, spec in domains.planned(nodes, levels).items():
        converted = msgspec.convert(spec, HyperNodeSpec)
        tree.put(HyperNode(metadata=Meta(name=name), spec=converted))
    for row, each in enumerate(nodes):
        tree.put_node(row, f"node-{row}", each)
    tree.resolve()
    return tree


def test_topographs_labels_become_tiers_from_the_closest_on() -> None:
    nodes = [
        labels("nvl1", "s1", "s3", "dc"),
        labels("nvl1", "s1", "s3", "dc"),
        labels("nvl2", "s1", "s3", "dc"),
        labels("nvl3", "s2", "s3", "dc"),
    ]

    tree = tree_of(nodes)

    assert tree.problems == {}
    assert list(tree.tiers) == [4, 3, 2, 1]
    assert [tree.domains(level).tolist() for level in range(4)] == [
        [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 2],
    ]  # fmt: skip
    assert [name.rpartition("-")[0] for name in tree.names(2)] == ["block-s1", "block-s2"]


def test_a_node_without_a_level_is_in_the_domains_above() -> None:
    tree = tree_of([labels("nvl1", "s1", "s3"), labels("", "s1", "s3"), labels("", "", "s3"), {}])

    assert tree.problems == {}
    spine, block, accelerator = (tree.domains(level).tolist() for level in range(3))
    nowhere = -1
    assert spine[:3] == [0, 0, 0]
    assert block[:3] == [0, 0, nowhere]
    assert accelerator[:3] == [0, nowhere, nowhere]
    assert all(np.all(tree.domains(level)[3:] == nowhere) for level in range(3))


def test_equal_values_below_different_domains_are_different_domains() -> None:
    tree = tree_of([labels("1", "a"), labels("1", "b")])

    assert tree.problems == {}
    assert len(set(tree.names(1))) == 2


def test_a_new_node_of_a_known_domain_changes_no_hyper_node() -> None:
    one = [labels("nvl1", "s1"), labels("nvl2", "s1")]

    assert domains.planned([*one, *one], TOPOGRAPH) == domains.planned(one, TOPOGRAPH)
    assert domains.planned([{}, {"other": "x"}], TOPOGRAPH) == {}


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "a-old", "b", "c"]),
            st.sampled_from(["1", "2", "X_y.z", ""]),
            max_size=4,
        ),
        max_size=8,
    )
)
def test_whatever_the_labels_are_the_tree_has_no_mistake_and_each_node_its_place(
    nodes: list[dict[str, str]],
) -> None:
    levels = (("a", "a-old"), ("b",), ("c",))

    tree = tree_of(nodes, levels)

    assert tree.problems == {}
    for row, each in enumerate(nodes):
        path = domains.path_of(each, levels)
        for level, tier in enumerate(tree.tiers):
            here = [part for part in path if part[0] + 1 == tier]
            place = tree.domains(level)[row]
            if here:
                upper = path[: path.index(here[0]) + 1]
                assert tree.names(level)[place] == domains.name_of(upper)
            else:
                assert place == -1


@pytest.mark.parametrize("value", ["x" * 63, "A_b.C", "0"])
def test_the_names_are_dns_labels(value: str) -> None:
    (name,) = domains.planned([{"example.com/Rack_No": value}], (("example.com/Rack_No",),))

    assert len(name) <= 63
    assert name == name.lower()
    assert all(part.isalnum() for part in name.split("-"))


def test_the_labels_of_each_version_of_topograph_are_known() -> None:
    versions = [
        {
            "accelerator.topograph.run/sub-domain": "n",
            "accelerator.topograph.run/domain": "n",
            **{f"fabric.topograph.run/tier-{tier}": str(tier) for tier in range(3)},
        },
        {f"network.topology.nvidia.com/{n}": n for n in ("accelerator", "leaf", "spine", "core")},
        labels("accelerator", "block", "spine", "datacenter"),
        {"nvidia.com/gpu.clique": "c.1", "network.topology.nvidia.com/leaf": "l"},
    ]

    assert [len(domains.path_of(each, TOPOGRAPH_LEVELS)) for each in versions] == [5, 4, 4, 2]
