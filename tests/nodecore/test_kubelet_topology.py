"""The topology manager answers as the kubelet's, case by case."""

from collections.abc import Iterable

import pytest

from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.machine import NumaNode
from bindery.nodecore.pods import Container, Pod
from bindery.nodecore.topology import merge, policies
from bindery.nodecore.topology import options as topology_options
from bindery.nodecore.topology.hints import Hint, ProviderHints
from bindery.nodecore.topology.manager import CONTAINER_SCOPE, POD_SCOPE, TopologyManager
from bindery.nodecore.topology.numa import NumaInfo, numa_info
from bindery.nodecore.topology.options import TopologyOptions
from tests.nodecore.kubelettables import Json, cases, hint, mask, pod

ONE_SOCKET = ((10, 11, 12, 12), (11, 10, 12, 12), (12, 12, 10, 11), (12, 12, 11, 10))
FAR = (30, 30, 30, 30)
NODES = {
    4: NumaInfo(tuple(range(4)), dict(enumerate(ONE_SOCKET))),
    8: NumaInfo(
        tuple(range(8)),
        {
            **{node: near + FAR for node, near in enumerate(ONE_SOCKET)},
            **{node + 4: FAR + near for node, near in enumerate(ONE_SOCKET)},
            7: (*FAR, 12, 12, 13, 10),
        },
    ),
}


def provider(found: Json | None) -> ProviderHints:
    if found is None:
        return None
    return {
        name: None if one is None else [hint(each) for each in one] for name, one in found.items()
    }


def lists(found: Iterable[Iterable[Json]]) -> list[list[Hint]]:
    return [[hint(one) for one in each] for each in found]


@cases("topology", "merge")
def test_hints_are_merged(case: Json) -> None:
    found = policies.merge_hints(
        case["policy"],
        NODES[case["nodes"]],
        [provider(one) for one in case["providers"]],
        TopologyOptions(prefer_closest=case["closest"]),
    )

    assert found.hint == hint(case["hint"])


@cases("topology", "none")
def test_hints_are_ignored_without_a_policy(case: Json) -> None:
    found = policies.merge_hints(
        policies.NONE, NODES[4], [provider(one) for one in case["providers"]]
    )

    assert (found.hint, found.admit) == (hint(case["hint"]), case["admit"])


@cases("topology", "single_nodes")
def test_only_hints_of_single_numa_nodes_are_kept(case: Json) -> None:
    assert policies.single_node_only(lists(case["resources"])) == lists(case["left"])


@cases("topology", "widest")
def test_the_resource_that_needs_most_nodes_decides(case: Json) -> None:
    assert merge.widest_minimum(lists(case["resources"])) == case["count"]


@cases("topology", "order")
def test_the_better_of_two_hints_is_kept(case: Json) -> None:
    candidate = hint(case["candidate"])
    # Without a current hint, only one without a node is worse than the candidate.
    current = hint(case["current"]) if case["current"] else Hint(0, preferred=False)

    found = min(current, candidate, key=lambda one: merge.order(one, case["fewest"]))
    assert found == (current if case["better"] == "current" else candidate)


@cases("topology", "numa")
def test_numa_nodes_are_read(case: Json) -> None:
    nodes = [NumaNode(node, distances=distances) for node, distances in case["nodes"]]
    if case["error"]:
        with pytest.raises(ConfigurationError) as error:
            numa_info(nodes, with_distances=case["closest"])
        assert case["error"] in str(error.value)
        return
    found = numa_info(nodes, with_distances=case["closest"])
    assert list(found.nodes) == (case["ids"] or [])
    if case["closest"]:
        assert {str(node): list(of) for node, of in found.distances.items()} == case["distances"]


@cases("topology", "closer")
def test_the_closer_of_two_masks_is_taken(case: Json) -> None:
    distances = {int(node): of for node, of in (case["distances"] or {}).items()}
    current, candidate = mask(case["current"]) or 0, mask(case["candidate"]) or 0

    found = NumaInfo(tuple(distances), distances).closest(current, candidate)
    assert found == (current if case["closer"] == "current" else candidate)


@cases("topology", "distances")
def test_the_mean_distance_counts_each_node_to_itself(case: Json) -> None:
    distances = {int(node): of for node, of in (case["distances"] or {}).items()}

    found = NumaInfo(tuple(distances), distances).mean_distance(mask(case["nodes"]) or 0)
    assert found == pytest.approx(case["mean"])


@cases("topology", "options")
def test_options_are_read(case: Json) -> None:
    if case["error"]:
        with pytest.raises(ConfigurationError) as error:
            topology_options.parse(case["options"])
        assert case["error"] in str(error.value)
    else:
        assert topology_options.parse(case["options"]) == TopologyOptions(
            case["closest"], case["most"]
        )


@cases("topology", "managers")
def test_the_manager_starts_only_with_settings_valid_for_the_machine(case: Json) -> None:
    nodes = [NumaNode(node) for node in range(case["nodes"])]

    def start() -> None:
        TopologyManager(nodes, case["policy"], options=topology_options.parse(case["options"]))

    if case["error"]:
        with pytest.raises(ConfigurationError) as error:
            start()
        assert case["error"] in str(error.value)
    else:
        start()


@cases("topology", "scopes")
def test_the_scope_has_a_name(case: Json) -> None:
    if case["error"]:
        with pytest.raises(ConfigurationError) as error:
            TopologyManager((), policies.BEST_EFFORT, case["scope"])
        assert case["error"] in str(error.value)
    else:
        assert TopologyManager((), policies.BEST_EFFORT, case["scope"]).scope == case["scope"]


class FixedHints:
    """A provider whose hints are given."""

    def __init__(self, found: ProviderHints) -> None:
        self._hints = found

    def container_hints(self, pod: Pod, container: Container) -> ProviderHints:  # noqa: ARG002
        return self._hints

    def pod_hints(self, pod: Pod) -> ProviderHints:  # noqa: ARG002
        return self._hints

    def allocate(self, pod: Pod, container: Container) -> None:
        pass

    def allocate_pod(self, pod: Pod) -> None:
        pass


@cases("topology", "admit")
@pytest.mark.parametrize("scope", [CONTAINER_SCOPE, POD_SCOPE])
def test_pods_are_admitted_by_the_policy(case: Json, scope: str) -> None:
    manager = TopologyManager([NumaNode(0), NumaNode(1)], case["policy"], scope)
    for one in case["providers"]:
        manager.add_provider(FixedHints(provider(one)))

    done = manager.admit(pod({"spec": {"containers": [{"name": "app"}]}}))
    assert done.admit == case["admit"]
    assert done.reason == ("" if case["admit"] else "TopologyAffinityError")
