"""Selection of CPUs: packed, aligned by cache, spread over cores, distributed over NUMA nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.cpu.distributed import deviation, take_distributed
from bindery.nodecore.cpu.packed import take_packed
from bindery.nodecore.cpu.topology import CpuTopology, discover
from bindery.nodecore.cpusets import format_cpus
from bindery.nodecore.errors import AllocationError, ConfigurationError
from bindery.nodecore.machine import Core, Machine, NumaNode, uniform
from tests.nodecore.nodes import cpus

ONE_SOCKET = discover(uniform(cores_per_numa=4, threads_per_core=2))
"""Cores {0,4} {1,5} {2,6} {3,7}."""
TWO_SOCKETS = discover(uniform(sockets=2, cores_per_numa=3, threads_per_core=2))
"""Node 0: {0,6} {1,7} {2,8}; node 1: {3,9} {4,10} {5,11}."""
FOUR_NODES = discover(uniform(sockets=2, numa_per_socket=2, cores_per_numa=4, threads_per_core=2))
"""Node n has the cores 4n to 4n+3; the second thread of core c is c+16."""
CACHES = discover(uniform(cores_per_numa=8, threads_per_core=2, cores_per_cache=2))
"""Four caches of two cores."""
EIGHT_NODES = discover(uniform(sockets=8, cores_per_numa=8))


@pytest.mark.parametrize(
    ("topology", "available", "count", "taken"),
    [
        (ONE_SOCKET, "0-7", 0, ""),
        (ONE_SOCKET, "0-7", 1, "0"),
        (ONE_SOCKET, "0-7", 2, "0,4"),
        (ONE_SOCKET, "0-7", 3, "0-1,4"),
        (ONE_SOCKET, "1-3,5-7", 2, "1,5"),
        (ONE_SOCKET, "0,2-3,6-7", 1, "0"),  # the core that is already in part use
        (ONE_SOCKET, "0,2-3,6-7", 3, "0,2,6"),  # a whole core first, then the rest
        (ONE_SOCKET, "0-7", 8, "0-7"),
        (TWO_SOCKETS, "0-11", 6, "0-2,6-8"),
        (TWO_SOCKETS, "1-11", 6, "3-5,9-11"),  # only the second node is whole
        (TWO_SOCKETS, "0-11", 7, "0-3,6-8"),
        (TWO_SOCKETS, "0,3-11", 2, "0,6"),  # the node with fewer free CPUs
        (FOUR_NODES, "0-31", 16, "0-7,16-23"),  # a socket
        (FOUR_NODES, "0-31", 8, "0-3,16-19"),  # a node
        (FOUR_NODES, "1-31", 8, "4-7,20-23"),
    ],
)
def test_cpus_are_packed(topology: CpuTopology, available: str, count: int, taken: str) -> None:
    assert format_cpus(take_packed(topology, cpus(available), count)) == taken


def test_too_many_cpus_are_refused() -> None:
    with pytest.raises(AllocationError) as error:
        take_packed(ONE_SOCKET, cpus("1-3"), 4)

    assert str(error.value) == (
        "not enough cpus available to satisfy request: requested=4, available=3"
    )


def test_single_threads_are_spread_over_cores() -> None:
    spread = take_packed(ONE_SOCKET, cpus("0-7"), 3, spread_over_cores=True)

    assert format_cpus(spread) == "0-2"


@pytest.mark.parametrize(
    ("available", "count", "taken"),
    [
        ("0-15", 4, "0-1,8-9"),  # a whole cache
        ("2-15", 4, "2-3,10-11"),  # the first whole one
        ("1-15", 2, "2,10"),  # the first cache whose first core is whole
        ("0-15", 6, "0-2,8-10"),
        ("0-15", 3, "0-1,8"),  # one thread of the second core stays free
        ("0,2,4,6,8,10,12,14", 4, "0,2,8,10"),  # no cache has four: whole cores
    ],
)
def test_cpus_of_one_cache_are_preferred(available: str, count: int, taken: str) -> None:
    found = take_packed(CACHES, cpus(available), count, align_by_uncore=True)

    assert format_cpus(found) == taken


@pytest.mark.parametrize(
    ("topology", "available", "count", "group", "taken"),
    [
        (FOUR_NODES, "0-31", 4, 1, "0-1,16-17"),  # one node is enough
        (FOUR_NODES, "0-31", 12, 1, "0-2,4-6,16-18,20-22"),  # six of each of two nodes
        (FOUR_NODES, "0-31", 12, 2, "0-2,4-6,16-18,20-22"),
        (FOUR_NODES, "0-31", 13, 2, "0-6,16-21"),  # no whole groups: packed
        (FOUR_NODES, "2-31", 24, 1, "4-15,20-31"),  # three whole nodes
        (EIGHT_NODES, "0-63", 24, 1, "0-23"),
        (EIGHT_NODES, "0-63", 32, 1, "0-23,56-63"),  # as the kubelet does, see Slice
    ],
)
def test_cpus_are_distributed_in_equal_parts(
    topology: CpuTopology, available: str, count: int, group: int, taken: str
) -> None:
    assert format_cpus(take_distributed(topology, cpus(available), count, group)) == taken


def test_too_many_cpus_cannot_be_distributed() -> None:
    with pytest.raises(AllocationError, match="requested=33, available=32"):
        take_distributed(FOUR_NODES, cpus("0-31"), 33)


def test_the_balance_is_rounded_as_in_the_kubelet() -> None:
    assert deviation([1, 2, 2]) == 0.471
    assert deviation([4, 4]) == 0


def test_a_core_is_identified_by_its_lowest_thread() -> None:
    topology = discover(uniform(sockets=2, cores_per_numa=2, threads_per_core=2))

    assert topology.details[5].core == 1
    assert (topology.cpus_per_core, topology.cpus_per_socket, topology.num_numa) == (2, 4, 2)


@pytest.mark.parametrize(
    ("cores", "message"),
    [
        ([], "could not detect number of cpus"),
        ([Core(0, [0, 0])], "cpus provided are not unique"),
        ([Core(0, [])], "no cpus provided"),
    ],
)
def test_machines_with_incomplete_cores_are_refused(cores: list[Core], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        discover(Machine((NumaNode(0, cores),)))


machines = st.builds(
    uniform,
    sockets=st.sampled_from([1, 2, 4]),
    numa_per_socket=st.sampled_from([1, 2]),
    cores_per_numa=st.sampled_from([1, 2, 4]),
    threads_per_core=st.sampled_from([1, 2]),
    cores_per_cache=st.sampled_from([None, 1, 2]),
)


@given(machines, st.data())
def test_taken_cpus_are_available_and_of_the_requested_number(
    machine: Machine, data: st.DataObject
) -> None:
    topology = discover(machine)
    available = data.draw(st.frozensets(st.sampled_from(sorted(topology.cpus)), min_size=1))
    count = data.draw(st.integers(0, len(available)))
    taken = [
        take_packed(topology, available, count, spread_over_cores=data.draw(st.booleans())),
        take_packed(topology, available, count, align_by_uncore=True),
        take_distributed(topology, available, count),
    ]

    for found in taken:
        assert found <= available
        assert len(found) == count
