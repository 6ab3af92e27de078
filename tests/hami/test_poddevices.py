"""The devices of a pod in HAMi's annotation, byte for byte for each version."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api.hami import poddevices
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.poddevices import ContainerDevice, Holding


def gpu(uuid: str, memory_mib: int, cores: int) -> ContainerDevice:
    return ContainerDevice(uuid, "NVIDIA", memory_mib, cores)


WRITTEN = [
    ("GPU-a,NVIDIA,3000,30:;", ((gpu("GPU-a", 3000, 30),),)),
    (
        "GPU-a,NVIDIA,1000,30:GPU-b,NVIDIA,1000,30:;",
        ((gpu("GPU-a", 1000, 30), gpu("GPU-b", 1000, 30)),),
    ),
    (
        "GPU-a,NVIDIA,3000,0:;GPU-a,NVIDIA,5000,0:;",
        ((gpu("GPU-a", 3000, 0),), (gpu("GPU-a", 5000, 0),)),
    ),
    (";GPU-a,NVIDIA,1000,30:;;", ((), (gpu("GPU-a", 1000, 30),), ())),
    ("", ()),
    (";", ((),)),
]


@pytest.mark.parametrize(("text", "slots"), WRITTEN)
def test_devices_are_encoded_as_by_hami(text: str, slots: poddevices.Slots) -> None:
    assert poddevices.encode(slots) == text
    assert poddevices.decode(text) == slots


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("GPU-a,NVIDIA,3000,30", "GPU-a,NVIDIA,3000,30:;"),  # end marks forgotten
        (",,0,0:;GPU-a,NVIDIA,1,2:;", ";GPU-a,NVIDIA,1,2:;"),  # the filler before 2.6
        ("GPU-a,NVIDIA,1,2,more,fields:;", "GPU-a,NVIDIA,1,2:;"),
        ("nothing;GPU-a,NVIDIA,1,2:;", ";GPU-a,NVIDIA,1,2:;"),
        ("GPU-a,NVIDIA,+1,02:;", "GPU-a,NVIDIA,1,2:;"),  # strconv reads both
    ],
)
def test_annotations_of_other_versions_are_read(text: str, same_as: str) -> None:
    assert poddevices.encode(poddevices.decode(text)) == same_as


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("GPU-a,NVIDIA,1:;", "3 of 4 fields"),
        ("GPU-a,,1,2:;", "no type"),
        ("GPU-a,NVIDIA,1_0,2:;", "memory '1_0' is not a whole number"),
        ("GPU-a,NVIDIA, 1,2:;", "memory"),
        ("GPU-a,NVIDIA,٣,2:;", "memory"),
        ("GPU-a,NVIDIA,-1,2:;", "out of range"),
        ("GPU-a,NVIDIA,2147483648,2:;", "out of range"),
        ("GPU-a,NVIDIA,1,x:;", "cores 'x'"),
    ],
)
def test_malformed_devices_are_named_in_the_error(text: str, says: str) -> None:
    with pytest.raises(HamiFormatError, match=says):
        poddevices.decode(text)


@given(st.text(alphabet=st.sampled_from("GPU-a,:;0123456789 _+-[]é"), max_size=60) | st.text())
def test_any_text_is_refused_or_survives_encoding_and_decoding(text: str) -> None:
    try:
        slots = poddevices.decode(text)
    except HamiFormatError:
        return
    again = poddevices.encode(slots)
    assert poddevices.decode(again) == slots
    assert poddevices.encode(poddevices.decode(again)) == again


names = st.text(
    alphabet=st.characters(exclude_characters=":;,", exclude_categories=["Cs"]), min_size=1
)
devices = st.builds(
    ContainerDevice, names, names, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)
)


@given(st.lists(st.lists(devices, max_size=3).map(tuple), max_size=4).map(tuple))
def test_devices_survive_encoding_and_decoding(slots: poddevices.Slots) -> None:
    assert poddevices.decode(poddevices.encode(slots)) == slots


@pytest.mark.parametrize("uuid", ["", "a:b", "a;b", "a,b"])
def test_a_device_with_a_separator_is_not_written(uuid: str) -> None:
    with pytest.raises(HamiFormatError, match="cannot be written"):
        poddevices.encode(((gpu(uuid, 1, 1),),))


def test_slots_without_the_empty_ones_are_matched_to_containers_by_count() -> None:
    two = (gpu("GPU-a", 1, 1), gpu("GPU-b", 1, 1))
    one = (gpu("GPU-c", 1, 1),)

    assert poddevices.align((one, two), [0, 1, 2]) == ((), one, two)
    assert poddevices.align(((), one, two, (), ()), [0, 1, 2]) == ((), one, two)


def test_devices_without_a_container_request_are_refused() -> None:
    with pytest.raises(HamiFormatError, match="slots of"):
        poddevices.align(((gpu("GPU-a", 1, 1),),), [2])


def test_a_mig_instance_in_the_uuid_belongs_to_its_card() -> None:
    assert gpu("GPU-a[0-1]", 1, 1).device == "GPU-a"
    assert gpu("GPU-a", 1, 1).device == "GPU-a"


def test_init_containers_hold_only_the_excess_over_other_containers() -> None:
    slots = (
        (gpu("GPU-a", 5000, 10),),
        (gpu("GPU-a", 1000, 20),),
        (gpu("GPU-a", 1000, 20),),
    )

    assert poddevices.collapse(slots, {0}) == {"GPU-a": Holding(2, 5000, 40)}
    assert poddevices.collapse(slots) == {"GPU-a": Holding(3, 7000, 50)}


@pytest.mark.parametrize(
    "texts",
    [
        ("A,x,1,0:;", ";;"),
        ("A,x,1,0:;B,x,1,0:;", ";B,x,1,0:;;", ";;;;"),
        (";A,x,1,0:;;", ";;;;"),
        (",,0,0:;A,x,1,0:;", ",,0,0:;;;"),  # the filler before 2.6 is no device
        ("", ";"),
    ],
)
def test_devices_are_erased_container_by_container_as_by_hamis_plugin(
    texts: tuple[str, ...],
) -> None:
    for before, after in itertools.pairwise(texts):
        assert poddevices.erase_first(before) == after


DEVICES = st.builds(gpu, st.sampled_from(["GPU-a", "GPU-b"]), st.integers(0, 9), st.integers(0, 9))


@given(st.lists(st.lists(DEVICES, max_size=2).map(tuple), max_size=5).map(tuple))
def test_each_erasure_leaves_one_container_less(slots: poddevices.Slots) -> None:
    text = poddevices.encode(slots)
    waiting = sum(map(bool, slots))
    for left in reversed(range(waiting)):
        text = poddevices.erase_first(text)
        assert sum(map(bool, poddevices.decode(text))) == left
