"""A call of the kubelet gets the devices of the right container, or nothing."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api.hami import names
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.lock import NodeLock
from bindery.api.hami.vendortable import NVIDIA
from bindery.nodeagent.shares import matching
from bindery.nodeagent.shares.matching import NoTurnError
from bindery.nodeagent.shares.pods import ContainerTurn, SharingPod, next_turn, slots_of
from tests.nodeagent.sharingpods import NODE, device, pod, served


def turn(
    of: SharingPod, held: dict[tuple[str, str], dict[str, object]] | None = None
) -> ContainerTurn:
    found = next_turn(of, NODE, held or {})
    assert found is not None
    return found


def test_the_containers_of_a_pod_have_their_turns_in_their_order() -> None:
    slots = ((device(memory_mib=1),), (), (device(memory_mib=2),))
    first = turn(pod("a", slots))
    second = turn(pod("a", slots, annotations=served(pod("a", slots))))

    assert (first.index, first.devices) == (0, slots[0])
    assert (second.index, second.devices) == (2, slots[2])
    assert next_turn(pod("a", slots, annotations=served(pod("a", slots), 2)), NODE, {}) is None


def test_init_containers_come_first() -> None:
    slots = ((device(memory_mib=1),), (device(memory_mib=2),))

    assert turn(pod("a", slots, init=1)).container.name == "c0"


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "Failed"},
        {"phase": "Succeeded"},
        {"phase": "Running"},
        {"node": "node-2"},
        {"annotations": {names.BIND_PHASE: "failed"}},
        {"annotations": {names.BIND_PHASE: None}},
    ],
)
def test_a_pod_that_is_not_about_to_start_here_has_no_turn(changes: dict[str, object]) -> None:
    assert next_turn(pod("a", ((device(),),), **changes), NODE, {}) is None  # type: ignore[arg-type]


def test_the_binders_record_counts_and_not_what_the_owner_has_rewritten() -> None:
    forged = dict.fromkeys((NVIDIA.to_allocate_key, NVIDIA.allocated_key), "GPU-b,NVIDIA,9999,0:;")

    assert turn(pod("a", ((device(),),), annotations=forged)).devices == (device(),)


def test_without_a_record_the_annotations_of_hamis_scheduler_count() -> None:
    found = turn(pod("a", ((device("GPU-b", 7),),), is_recorded=False))

    assert found.devices == (device("GPU-b", 7),)


def test_annotations_that_do_not_fit_the_containers_are_refused() -> None:
    extra = {NVIDIA.to_allocate_key: "GPU-a,NVIDIA,1,0:;GPU-a,NVIDIA,1,0:;"}
    with pytest.raises(HamiFormatError, match="2 slots are left for 1"):
        next_turn(pod("a", ((device(),),), annotations=extra), NODE, {})
    wrong = {NVIDIA.allocated_key: "GPU-a,NVIDIA,1,0:GPU-b,NVIDIA,1,0:;"}
    with pytest.raises(HamiFormatError):
        slots_of(pod("a", ((device(),),), is_recorded=False, annotations=wrong), NODE)


def test_a_kubelet_that_has_forgotten_its_call_gets_the_same_devices_again() -> None:
    slots = ((device(memory_mib=1),), (device(memory_mib=2),))
    done = {**served(pod("a", slots), 2), names.BIND_PHASE: "success"}
    found = pod("a", slots, annotations=done)

    assert turn(found, {("n", "a"): {}}).devices == slots[0]
    assert turn(found, {("n", "a"): {"c0": ()}}).devices == slots[1]
    assert next_turn(found, NODE, {("n", "a"): {"c0": (), "c1": ()}}) is None
    assert next_turn(found, NODE, {}) is None


def test_the_holder_of_the_lock_is_served_first() -> None:
    turns = [turn(pod(name, ((device(memory_mib=n),),))) for n, name in enumerate("abc", 1)]

    for name in "abc":
        found = matching.choose(turns, NodeLock(1, "n", name), ["GPU-x"])
        assert found.pod.metadata.name == name


def test_a_pod_to_which_the_kubelet_has_come_is_served_before_the_holder_of_the_lock() -> None:
    """After a restart the kubelet asks again for `a`, while the node is locked for `b`."""
    turns = [turn(pod(name, ((device(memory_mib=n),),))) for n, name in enumerate("ab", 1)]

    reported = matching.in_admission(turns, {("n", "a"): {}})

    assert matching.choose(reported, NodeLock(1, "n", "b"), ["GPU-a"]).pod.metadata.name == "a"
    assert matching.in_admission(turns, {("n", "other"): {}}) == turns


def test_a_holder_with_another_number_of_devices_is_not_meant() -> None:
    pair = turn(pod("pair", ((device("GPU-a"), device("GPU-b")),)))
    single = turn(pod("single", ((device(),),)))

    found = matching.choose([pair, single], NodeLock(1, "n", "pair"), ["GPU-a"])

    assert found is single


def test_without_a_lock_the_uuids_decide() -> None:
    turns = [turn(pod(uuid, ((device(uuid),),))) for uuid in ("GPU-a", "GPU-b")]

    assert matching.choose(turns, None, ["GPU-b"]) is turns[1]


def test_equal_pods_are_served_in_any_order_and_different_ones_not_at_all() -> None:
    equal = [turn(pod(name, ((device(),),))) for name in "ab"]
    assert matching.choose(equal, None, ["GPU-a"]).pod.metadata.name == "a"

    other = turn(pod("c", ((device(cores=99),),)))
    with pytest.raises(NoTurnError, match="n/a, n/b, n/c"):
        matching.choose([*equal, other], None, ["GPU-a"])
    with pytest.raises(NoTurnError, match="no pod of this node waits for 2"):
        matching.choose(equal, None, ["GPU-a", "GPU-b"])


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["GPU-a", "GPU-b"]), min_size=1, max_size=2),
            st.integers(1, 3),
        ),
        max_size=5,
    ),
    st.integers(0, 5),
    st.lists(st.sampled_from(["GPU-a", "GPU-b"]), min_size=1, max_size=2),
)
def test_whatever_is_chosen_without_a_lock_is_equal_to_all_that_could_be_meant(
    wanted: list[tuple[list[str], int]], holder: int, uuids: list[str]
) -> None:
    turns = [
        turn(pod(f"p{n}", (tuple(device(uuid, memory) for uuid in of),)))
        for n, (of, memory) in enumerate(wanted)
    ]
    lock = NodeLock(1, "n", f"p{holder}")
    try:
        found = matching.choose(turns, lock, uuids)
    except NoTurnError:
        assert not [each for each in turns if len(each.devices) == len(uuids) and
                    each.pod.metadata.name == lock.name]  # fmt: skip
        return
    assert len(found.devices) == len(uuids)
    if found.pod.metadata.name != lock.name:
        exact = [t for t in turns if sorted(d.uuid for d in t.devices) == sorted(uuids)]
        meant = exact or [t for t in turns if len(t.devices) == len(uuids)]
        assert len({tuple(sorted(map(repr, each.devices))) for each in meant}) == 1


def test_the_kubelet_is_asked_to_choose_the_shares_of_the_planned_devices() -> None:
    shares = list(itertools.chain(*(matching.shares(uuid, 3) for uuid in ("GPU-a", "GPU-b"))))
    both = turn(pod("both", ((device("GPU-b"), device("GPU-a")),)))

    assert sorted(matching.preferred(both, shares, [], 2)) == ["GPU-a-0", "GPU-b-0"]
    assert matching.preferred(both, shares, ["GPU-b-2"], 2) == ["GPU-b-2", "GPU-a-0"]
    assert matching.preferred(turn(pod("b", ((device("GPU-b"),),))), shares, [], 1) == ["GPU-b-0"]
    assert matching.preferred(None, shares, [], 2) == ["GPU-a-0", "GPU-a-1"]
    full = [each for each in shares if "GPU-b" not in each]
    assert matching.preferred(both, full, [], 2) == ["GPU-a-0", "GPU-a-1"]
