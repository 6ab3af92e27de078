"""The choice among devices that fit: HAMi's order, and linked cards."""

import pytest

from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.poddevices import Holding
from bindery.api.hami.wishes import DevicePolicy, Wishes
from bindery.scheduler.plugins.hami import order
from bindery.scheduler.plugins.hami.fit import Fitting, ShapeRequest, held_by
from bindery.scheduler.plugins.hami.fleet import HamiNode
from bindery.scheduler.plugins.hami.usage import NodeUsage, Tally
from tests.hami.test_fit import A100, ask, card, indexes, node, of_vendor

BINPACK, SPREAD, NUMA = DevicePolicy.BINPACK, DevicePolicy.SPREAD, DevicePolicy.NUMA
MUTEX, TOPOLOGY = DevicePolicy.MUTEX, DevicePolicy.TOPOLOGY

NUMA_OF = {0: 0, 1: 1, 2: 0, 3: 1}
SCORES = {"GPU-0": 1.0, "GPU-1": 2.0, "GPU-2": 3.0, "GPU-3": 2.0}


def cards() -> list[NodeDevice]:
    return [card(index, numa=numa) for index, numa in NUMA_OF.items()]


@pytest.mark.parametrize(
    ("policies", "by_numa", "wanted"),
    [
        ((BINPACK,), False, [2, 3, 1, 0]),
        ((SPREAD,), False, [0, 3, 1, 2]),
        ((TOPOLOGY,), False, [0, 3, 1, 2]),
        ((MUTEX,), False, [3, 1, 2, 0]),
        ((NUMA,), False, [3, 1, 2, 0]),
        ((BINPACK,), True, [2, 0, 3, 1]),
        ((SPREAD,), True, [3, 1, 0, 2]),
        ((TOPOLOGY,), True, [3, 1, 0, 2]),
        ((MUTEX,), True, [3, 1, 2, 0]),
        ((NUMA,), True, [3, 1, 2, 0]),
        ((NUMA, BINPACK), False, [3, 1, 2, 0]),
        ((NUMA, SPREAD), False, [3, 1, 0, 2]),
        ((BINPACK, NUMA), False, [2, 3, 1, 0]),
        ((BINPACK, NUMA), True, [3, 1, 2, 0]),
        ((SPREAD, MUTEX), True, [3, 1, 0, 2]),
        ((MUTEX, TOPOLOGY), False, [0, 3, 1, 2]),
    ],
)
def test_devices_are_chosen_in_the_scan_order_of_hami(
    policies: tuple[DevicePolicy, ...], by_numa: bool, wanted: list[int]
) -> None:
    found = order.in_order(cards(), SCORES, policies, by_numa=by_numa)

    assert [device.index for device in found] == wanted


@pytest.mark.parametrize("policies", [(BINPACK,), (SPREAD,), (MUTEX,), (NUMA,), (TOPOLOGY,)])
def test_the_highest_index_of_equal_devices_is_chosen_in_any_register_order(
    policies: tuple[DevicePolicy, ...],
) -> None:
    equal = [card(index) for index in (2, 0, 3, 1)]
    found = order.in_order(equal, dict.fromkeys(SCORES, 1.0), policies, by_numa=False)

    assert [device.index for device in found] == [3, 2, 1, 0]


def taken(
    where: HamiNode,
    wanted: ShapeRequest,
    policies: tuple[DevicePolicy, ...],
    usage: NodeUsage | None = None,
) -> list[int] | None:
    found = Fitting(where, wanted, policies, usage.now if usage else Tally()).run()
    return sorted(found.indexes.values()) if found is not None else None


def npus(*free: int) -> HamiNode:
    return node(*(card(i, type="Ascend910C", cores=20) for i in free), word="Ascend910C")


@pytest.mark.parametrize("policies", [(SPREAD,), (TOPOLOGY,), (BINPACK, TOPOLOGY)])
def test_modules_of_ascend_910c_are_whole_with_any_policy(
    policies: tuple[DevicePolicy, ...],
) -> None:
    two = of_vendor(**{"huawei.com/Ascend910C": 2})

    assert taken(npus(1, 2, 4, 5), two, policies) == [4, 5]
    assert taken(npus(1, 2), two, policies) is None


def test_a_single_ascend_910c_is_a_module_of_two() -> None:
    one = of_vendor(**{"huawei.com/Ascend910C": 1})

    assert taken(npus(1, 2, 4, 5), one, (SPREAD,)) == [4, 5]
    assert taken(npus(1, 2), one, (SPREAD,)) is None


def test_the_topology_policy_keeps_wings_of_kunlun_and_ranges_of_neurons() -> None:
    xpus = node(*(card(i, type="kunlun") for i in (1, 2, 3, 4, 5, 6)), word="kunlun")
    neurons = node(*(card(i, type="AWSNeuron", cores=3) for i in (0, 2, 3)), word="AWSNeuron")

    four = of_vendor(**{"kunlunxin.com/xpu": 4})
    assert taken(xpus, four, (TOPOLOGY,)) == [1, 2, 5, 6]
    pair = of_vendor(**{"aws.amazon.com/neuron": 2})
    assert taken(neurons, pair, (TOPOLOGY,)) == [2, 3]


def test_the_topology_policy_uses_one_numa_node_if_requested() -> None:
    links = {"GPU-0": {"GPU-1": 500}, "GPU-1": {"GPU-0": 500}}
    where = HamiNode({"NVIDIA": tuple(cards())}, pair_scores=links)

    assert taken(where, ask(Wishes(), gpu=2, gpumem=1), (TOPOLOGY,)) == [0, 1]
    assert taken(where, ask(Wishes(binds_numa=True), gpu=2, gpumem=1), (TOPOLOGY,)) == [1, 3]


def test_the_topology_policy_spreads_without_measured_links() -> None:
    where, usage = node(card(0), card(1), card(2)), NodeUsage()
    small = ask(gpu=1, gpumem=100)
    devices: list[int] = []
    for _ in range(3):
        found = Fitting(where, small, (TOPOLOGY,), usage.now).run()
        assert found is not None
        usage.hold(held_by(found, small, "n"))
        devices += found.indexes.values()

    assert sorted(devices) == [0, 1, 2]


def test_a_numa_node_with_unlinked_free_cards_is_skipped() -> None:
    free = [
        card(i, type="Ascend910C", cores=20, numa=numa)
        for i, numa in ((1, 1), (2, 1), (4, 0), (5, 0))
    ]
    two = of_vendor(**{"huawei.com/Ascend910C": 2})
    bound = ShapeRequest(two.request, Wishes(binds_numa=True))

    assert taken(node(*free, word="Ascend910C"), bound, (SPREAD,)) == [4, 5]


def test_a_partitionable_card_serves_several_instances_of_one_numa_node() -> None:
    wanted = ask(Wishes(binds_numa=True), gpu=3, gpumem=4000)

    assert indexes(node(A100), wanted) == [0]


def test_the_mutex_policy_refuses_devices_in_use() -> None:
    tally = Tally()
    tally.used["GPU-3"] = Holding(1, 100, 0)
    found = Fitting(node(*cards()), ask(gpu=1, gpumem=1), (MUTEX,), tally).run()

    assert found is not None
    assert list(found.indexes.values()) == [1]
