"""Which devices are taken of those that fit: HAMi's order, and cards that belong together."""

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
def test_devices_are_taken_in_the_order_in_which_hami_scans_them(
    policies: tuple[DevicePolicy, ...], by_numa: bool, wanted: list[int]
) -> None:
    found = order.in_order(cards(), SCORES, policies, by_numa=by_numa)

    assert [device.index for device in found] == wanted


@pytest.mark.parametrize("policies", [(BINPACK,), (SPREAD,), (MUTEX,), (NUMA,), (TOPOLOGY,)])
def test_of_equal_devices_the_highest_index_goes_first_however_they_are_registered(
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
def test_modules_of_ascend_910c_are_whole_whatever_the_policy(
    policies: tuple[DevicePolicy, ...],
) -> None:
    two = of_vendor(**{"huawei.com/Ascend910C": 2})

    assert taken(npus(1, 2, 4, 5), two, policies) == [4, 5]
    assert taken(npus(1, 2), two, policies) is None


def test_a_single_ascend_910c_is_a_module_of_two() -> None:
    one = of_vendor(**{"huawei.com/Ascend910C": 1})

    assert taken(npus(1, 2, 4, 5), one, (SPREAD,)) == [4, 5]
    assert taken(npus(1, 2), one, (SPREAD,)) is None


def test_topology_keeps_kunluns_wings_and_neurons_runs() -> None:
    xpus = node(*(card(i, type="kunlun") for i in (1, 2, 3, 4, 5, 6)), word="kunlun")
    neurons = node(*(card(i, type="AWSNeuron", cores=3) for i in (0, 2, 3)), word="AWSNeuron")

    four = of_vendor(**{"kunlunxin.com/xpu": 4})
    assert taken(xpus, four, (TOPOLOGY,)) == [1, 2, 5, 6]
    pair = of_vendor(**{"aws.amazon.com/neuron": 2})
    assert taken(neurons, pair, (TOPOLOGY,)) == [2, 3]


def test_topology_binds_to_one_numa_node_where_that_is_asked_for() -> None:
    links = {"GPU-0": {"GPU-1": 500}, "GPU-1": {"GPU-0": 500}}
    where = HamiNode({"NVIDIA": tuple(cards())}, pair_scores=links)

    assert taken(where, ask(Wishes(), gpu=2, gpumem=1), (TOPOLOGY,)) == [0, 1]
    assert taken(where, ask(Wishes(binds_numa=True), gpu=2, gpumem=1), (TOPOLOGY,)) == [1, 3]


def test_topology_without_measured_links_spreads() -> None:
    where, usage = node(card(0), card(1), card(2)), NodeUsage()
    small = ask(gpu=1, gpumem=100)
    devices: list[int] = []
    for _ in range(3):
        found = Fitting(where, small, (TOPOLOGY,), usage.now).run()
        assert found is not None
        usage.hold(held_by(found, small, "n"))
        devices += found.indexes.values()

    assert sorted(devices) == [0, 1, 2]


def test_a_numa_node_whose_free_cards_are_not_linked_is_passed_over() -> None:
    free = [
        card(i, type="Ascend910C", cores=20, numa=numa)
        for i, numa in ((1, 1), (2, 1), (4, 0), (5, 0))
    ]
    two = of_vendor(**{"huawei.com/Ascend910C": 2})
    bound = ShapeRequest(two.request, Wishes(binds_numa=True))

    assert taken(node(*free, word="Ascend910C"), bound, (SPREAD,)) == [4, 5]


def test_a_card_that_can_be_cut_serves_several_instances_of_one_numa_node() -> None:
    wanted = ask(Wishes(binds_numa=True), gpu=3, gpumem=4000)

    assert indexes(node(A100), wanted) == [0]


def test_devices_in_use_are_refused_to_who_wants_idle_ones() -> None:
    tally = Tally()
    tally.used["GPU-3"] = Holding(1, 100, 0)
    found = Fitting(node(*cards()), ask(gpu=1, gpumem=1), (MUTEX,), tally).run()

    assert found is not None
    assert list(found.indexes.values()) == [1]
