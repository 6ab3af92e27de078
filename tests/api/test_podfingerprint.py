"""Fingerprints of sets of pods, and the details of NUMA zones on a report."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api import numadetail, podfingerprint

PODS = st.lists(st.tuples(st.text(max_size=70), st.text(max_size=70)), max_size=10)


@given(PODS, st.randoms())
def test_the_order_of_pods_does_not_matter(pods: list[tuple[str, str]], random: Random) -> None:
    shuffled = list(pods)
    random.shuffle(shuffled)
    assert podfingerprint.sign(pods) == podfingerprint.sign(shuffled)
    assert podfingerprint.is_readable(podfingerprint.sign(pods))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([], [("a", "b")]),
        ([("a", "b")], [("b", "a")]),
        ([("a", "b")], [("a", "b"), ("a", "b")]),
        ([("ab", "c")], [("a", "bc")]),
    ],
)
def test_different_pods_have_different_fingerprints(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    assert podfingerprint.sign(one) != podfingerprint.sign(other)


@pytest.mark.parametrize("text", ["", "x", "pfp0v000e477a4e3b2fc0ec6", "pfp0v001", "pfp0v0011"])
def test_fingerprints_of_other_versions_are_not_readable(text: str) -> None:
    assert not podfingerprint.is_readable(text)


def test_a_numa_detail_survives_writing_and_reading() -> None:
    detail = numadetail.NumaDetail(
        pods=["u1"],
        cpu_manager_policy="static",
        cpus={"node-0": "0-3"},
        free="1-3",
        cores=["0-1", "2-3"],
        devices={"nvidia.com/gpu": {"node-0": ["gpu-0"]}},
    )
    assert numadetail.decode(detail.encode()) == detail
    assert '"cpuManagerPolicy":"static"' in detail.encode()


def test_a_malformed_numa_detail_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        numadetail.decode('{"pods": 3}')
