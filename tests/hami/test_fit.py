"""The fit of pods to the devices of a node: within capacity, and by each vendor's rule."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api.hami import requests, wishes
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.nodedevices import MigPlacement, MigProfile, NodeDevice
from bindery.api.hami.requests import PodRequest
from bindery.api.hami.vendortable import BY_WORD
from bindery.api.hami.wishes import DevicePolicy, Wishes
from bindery.scheduler.plugins.hami import mig
from bindery.scheduler.plugins.hami.fit import Fitting, ShapeRequest, held_by
from bindery.scheduler.plugins.hami.fleet import HamiNode
from bindery.scheduler.plugins.hami.usage import NodeUsage, Tally

SPREAD = (DevicePolicy.SPREAD,)


def ask(wanted: Wishes | None = None, /, **amounts: int) -> ShapeRequest:
    """Return the request of a pod with one container; `gpumem` stands for nvidia.com/gpumem."""
    named = {f"nvidia.com/{name}": str(amount) for name, amount in amounts.items()}
    slot = requests.read_container(named)
    return ShapeRequest(PodRequest((slot,), frozenset(), True), wanted or Wishes())


def of_vendor(**amounts: int) -> ShapeRequest:
    named = {name: str(amount) for name, amount in amounts.items()}
    return ShapeRequest(PodRequest((requests.read_container(named),), frozenset(), True), Wishes())


def card(index: int, **facts: object) -> NodeDevice:
    given = {"count": 10, "memory_mib": 10_000, "cores": 100, "type": "NVIDIA-T4", "healthy": True}
    return NodeDevice(id=f"GPU-{index}", index=index, **{**given, **facts})  # type: ignore[arg-type]


def node(*devices: NodeDevice, word: str = "NVIDIA") -> HamiNode:
    return HamiNode({word: devices})


def indexes(where: HamiNode, wanted: ShapeRequest, tally: Tally | None = None) -> list[int] | None:
    found = Fitting(where, wanted, SPREAD, tally or Tally()).run()
    return sorted(found.indexes.values()) if found is not None else None


amounts = st.fixed_dictionaries(
    {"gpu": st.integers(1, 3)},
    optional={
        "gpumem": st.integers(1, 12_000),
        "gpumem-percentage": st.integers(1, 100),
        "gpucores": st.integers(0, 100),
    },
)
policies = st.lists(st.sampled_from(DevicePolicy), max_size=2).map(tuple)


@given(st.lists(st.tuples(amounts, policies), max_size=25), st.integers(1, 4))
def test_no_device_is_allocated_beyond_its_capacity(
    pods: Sequence[tuple[dict[str, int], tuple[DevicePolicy, ...]]], cards: int
) -> None:
    where, usage, holders = node(*(card(i, numa=i % 2) for i in range(cards))), NodeUsage(), []
    for wanted, order in pods:
        each = ask(Wishes(device_policies=order), **wanted)
        found = Fitting(where, each, order or SPREAD, usage.now).run()
        if found is not None:
            held = held_by(found, each, "n")
            usage.hold(held)
            holders.append(held)
            assert sum(len(slot) for slot in found.devices["NVIDIA"]) == wanted["gpu"]
    for device in where.devices["NVIDIA"]:
        used = usage.now.used[device.id]
        assert used.shares <= device.count
        assert used.memory_mib <= device.memory_mib
        assert used.cores <= device.cores
    for held in reversed(holders):
        usage.let_go(held)
    assert all(not (u.shares or u.memory_mib or u.cores) for u in usage.now.used.values())


def test_fitting_does_not_change_the_node() -> None:
    tally = Tally()
    Fitting(node(card(0)), ask(gpu=1, gpumem=100), SPREAD, tally).run()

    assert not any(holding.shares for holding in tally.used.values())


@pytest.mark.parametrize(
    ("amounts", "devices", "says"),
    [
        ({"gpu": 1, "gpumem": 100}, [card(0, healthy=False)], "1/1 CardNotHealth"),
        ({"gpu": 1, "gpumem": 20_000}, [card(0)], "1/1 CardInsufficientMemory"),
        ({"gpu": 1, "gpumem": 1, "gpucores": 50}, [card(0, cores=40)], "1/1 CardInsufficientCore"),
        ({"gpu": 1, "gpumem": 1}, [card(0, count=0)], "1/1 CardTimeSlicingExhausted"),
        (
            {"gpu": 2, "gpumem": 9000},
            [card(0), card(1, memory_mib=1000), card(2, healthy=False)],
            "1/3 AllocatedCardsInsufficientRequest, 1/3 CardInsufficientMemory, 1/3 CardNotHealth",
        ),
        ({"gpu": 2, "gpumem": 1}, [card(0, healthy=False)], "NodeInsufficientDevice"),
    ],
)
def test_missing_capacity_is_reported_as_by_hami_with_the_number_of_devices(
    amounts: dict[str, int], devices: list[NodeDevice], says: str
) -> None:
    fitting = Fitting(node(*devices), ask(**amounts), SPREAD, Tally())

    assert fitting.run() is None
    assert str(fitting.reasons) == says


def test_reasons_for_containers_that_fit_are_not_reported() -> None:
    first = requests.read_container({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9000"})
    second = requests.read_container({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "99000"})
    both = ShapeRequest(PodRequest((first, second), frozenset(), True), Wishes())
    fitting = Fitting(node(card(0), card(1, memory_mib=1000)), both, SPREAD, Tally())

    assert fitting.run() is None
    assert str(fitting.reasons) == "2/2 CardInsufficientMemory"


def test_only_devices_in_the_modes_of_the_pod_are_used() -> None:
    where = node(card(0, mode="mps"), card(1, mode="hami-core"))

    assert indexes(where, ask(Wishes(modes="hami-core"), gpu=1, gpumem=1)) == [1]


def test_one_hundred_cores_do_not_fill_a_card_with_scaled_cores() -> None:
    where, usage = node(card(0, cores=200)), NodeUsage()
    whole = ask(gpu=1, gpumem=100, gpucores=100)
    first = Fitting(where, whole, SPREAD, usage.now).run()
    assert first is not None
    usage.hold(held_by(first, whole, "n"))

    assert indexes(where, whole, usage.now) == [0]


def test_linked_groups_of_kunlun_are_allocated_together() -> None:
    cards = [card(i, type="kunlun") for i in range(8)]
    four = of_vendor(**{"kunlunxin.com/xpu": 4})
    free = [each for each in cards if each.index not in (0, 7)]

    assert indexes(node(*cards, word="kunlun"), four) == [0, 1, 2, 3]
    assert indexes(node(*free, word="kunlun"), four) == [1, 2, 5, 6]
    assert indexes(node(*free[:3], word="kunlun"), four) is None


def test_modules_of_ascend_910c_are_never_split() -> None:
    cards = [card(i, type="Ascend910C", cores=20) for i in (0, 1, 3, 4, 5)]
    two = of_vendor(**{"huawei.com/Ascend910C": 4})

    assert indexes(node(*cards, word="Ascend910C"), two) == [0, 1, 4, 5]


def test_neurons_are_allocated_in_contiguous_ranges() -> None:
    cards = [card(i, type="AWSNeuron", cores=3) for i in (0, 2, 3, 4, 5, 6, 7)]
    pair = of_vendor(**{"aws.amazon.com/neuron": 2})
    four = of_vendor(**{"aws.amazon.com/neuron": 4})

    assert indexes(node(*cards, word="AWSNeuron"), pair) == [2, 3]
    assert indexes(node(*cards, word="AWSNeuron"), four) == [4, 5, 6, 7]


def test_single_neuron_cores_are_identified_by_bits() -> None:
    where, usage = node(card(0, type="AWSNeuron", cores=3), word="AWSNeuron"), NodeUsage()
    core = of_vendor(**{"aws.amazon.com/neuroncore": 1})
    bits = []
    while (found := Fitting(where, core, SPREAD, usage.now).run()) is not None:
        bits.append(found.devices["AWSNeuron"][0][0].cores)
        usage.hold(held_by(found, core, "n"))

    assert bits == [1, 2]


def test_slices_of_one_kunlun_card_have_the_same_size() -> None:
    where, usage = node(card(0, type="XPU", memory_mib=98304), word="XPU"), NodeUsage()
    small = of_vendor(**{"kunlunxin.com/vxpu": 1, "kunlunxin.com/vxpu-memory": 20_000})
    large = of_vendor(**{"kunlunxin.com/vxpu": 1, "kunlunxin.com/vxpu-memory": 40_000})
    first = Fitting(where, small, SPREAD, usage.now).run()
    assert first is not None
    usage.hold(held_by(first, small, "n"))

    assert indexes(where, small, usage.now) == [0]
    assert indexes(where, large, usage.now) is None


SMALL = MigProfile(
    name="1g.5gb",
    memory_mib=4864,
    cores=14,
    placements=tuple(MigPlacement(start, 1) for start in range(7)),
)
HALF = MigProfile(
    name="3g.20gb",
    memory_mib=19968,
    cores=42,
    placements=(MigPlacement(0, 4), MigPlacement(4, 4)),
)
WHOLE = MigProfile(name="7g.40gb", memory_mib=40192, cores=100, placements=(MigPlacement(0, 8),))
A100 = card(0, mode="mig", memory_mib=40960, mig_profiles=(WHOLE, SMALL, HALF))


def test_a_mig_instance_of_the_smallest_sufficient_profile_takes_the_highest_slot() -> None:
    assert mig.choose(A100, 1000, [], ()) == (SMALL, MigPlacement(6, 1))
    assert mig.choose(A100, 5000, [], ()) == (HALF, MigPlacement(4, 4))
    assert mig.choose(A100, 5000, [MigPlacement(6, 1)], ()) == (HALF, MigPlacement(0, 4))
    assert mig.choose(A100, 30000, [MigPlacement(6, 1)], ()) is None


def test_preferred_mig_profiles_are_used_first_by_name_or_by_slices() -> None:
    assert mig.choose(A100, 1000, [], ("3g",)) == (HALF, MigPlacement(4, 4))
    assert mig.choose(A100, 1000, [], ("7g.40gb", "3g")) == (WHOLE, MigPlacement(0, 8))


def test_mig_instances_of_one_pod_take_separate_placements() -> None:
    wanted = ask(gpu=3, gpumem=4000)
    found = Fitting(node(A100), wanted, SPREAD, Tally()).run()

    assert found is not None
    assert [each.placement.start for each in found.mig] == [6, 5, 4]
    assert [each.device_index for each in found.mig] == [0, 1, 2]
    assert {device.memory_mib for device in found.devices["NVIDIA"][0]} == {4864}


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({"hami.io/device-scoring-weights": "slot=0,core=0,memory=0"}, "not all 0"),
        ({"hami.io/device-scoring-weights": "slot=1,slot=1,memory=0"}, "not 'slot=1'"),
        ({"hami.io/device-scoring-weights": "slot=-1,core=0,memory=1"}, "out of range"),
        ({"hami.io/node-scheduler-policy": "up"}, "binpack, spread"),
        ({"nvidia.com/numa-bind": "maybe"}, "neither true nor false"),
    ],
)
def test_unreadable_preferences_are_named(annotations: dict[str, str], says: str) -> None:
    with pytest.raises(HamiFormatError, match=says):
        wishes.read(annotations, [BY_WORD["NVIDIA"]])


def test_blank_preferences_are_ignored() -> None:
    blank = dict.fromkeys(wishes.keys([BY_WORD["NVIDIA"]]), " ")
    read = wishes.read(blank, [BY_WORD["NVIDIA"]])

    assert read.selection(BY_WORD["NVIDIA"]).takes_id("any")
    assert (read.device_policies, read.binds_numa, read.node_policy) == ((), False, None)
