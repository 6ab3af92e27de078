"""Hardware as the files of /sys/devices/system describe it."""

import pytest

from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.machine import Core, HugePages, Machine, NumaNode
from bindery.nodecore.sysfs import machine_of


def cpu(number: int, core: int, cache: str, *, socket: int = 0) -> dict[str, str]:
    """Return the files of a CPU; `cache`: id of its cache of level 3, and who shares it."""
    directory = f"cpu/cpu{number}"
    identity, shared = cache.split(":")
    return {
        f"{directory}/topology/physical_package_id": f"{socket}\n",
        f"{directory}/topology/core_id": f"{core}\n",
        f"{directory}/cache/index3/level": "3\n",
        f"{directory}/cache/index3/id": f"{identity}\n",
        f"{directory}/cache/index3/shared_cpu_list": f"{shared}\n",
        f"{directory}/cache/index2/level": "2\n",
        f"{directory}/cache/index2/id": "9\n",
        f"{directory}/cache/index2/shared_cpu_list": f"{number}\n",
    }


def node(number: int, cpus: str, distance: str) -> dict[str, str]:
    directory = f"node/node{number}"
    return {
        f"{directory}/cpulist": f"{cpus}\n",
        f"{directory}/meminfo": f"Node {number} MemTotal:   2048 kB\nNode {number} MemFree: 1 kB\n",
        f"{directory}/distance": f"{distance}\n",
        f"{directory}/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
        f"{directory}/hugepages/hugepages-2048kB/nr_hugepages": "4\n",
    }


PAGES = (HugePages(2048, 4), HugePages(1048576, 0))
SMALL = {**node(0, "0", "10"), **cpu(0, 0, "0:0")}


def test_zones_have_their_cores_memory_and_distances() -> None:
    """Threads of a core are found by socket and core, whatever their numbers."""
    files = {
        **node(1, "1,3", "21 10"),
        **node(0, "0,2", "10 21"),
        **cpu(0, 0, "0:0,2"),
        **cpu(2, 0, "0:0,2"),
        **cpu(1, 0, "1:1,3", socket=1),
        **cpu(3, 1, "1:1,3", socket=1),
    }

    assert machine_of(files) == Machine(
        (
            NumaNode(0, (Core(0, (0, 2)),), 2048 << 10, PAGES, (10, 21)),
            NumaNode(1, (Core(1, (1,)), Core(1, (3,))), 2048 << 10, PAGES, (21, 10)),
        )
    )


def test_a_cache_that_some_cores_of_a_zone_share_is_an_uncore_cache() -> None:
    files = {
        **node(0, "0-3", "10"),
        **cpu(0, 0, "0:0-1"),
        **cpu(1, 1, "0:0-1"),
        **cpu(2, 2, "1:2-3"),
        **cpu(3, 3, "1:2-3"),
    }

    (zone,) = machine_of(files).nodes

    assert [core.uncore_cache for core in zone.cores] == [0, 0, 1, 1]


def test_a_zone_of_memory_alone_has_no_cores() -> None:
    (zone,) = machine_of(node(0, "", "10")).nodes

    assert zone.cores == ()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "there is no node0"),
        ({**SMALL, "node/node0/meminfo": ""}, "meminfo of a node has no MemTotal"),
        ({**SMALL, "node/node0/distance": "near"}, "invalid literal"),
        ({path: SMALL[path] for path in SMALL if "core_id" not in path}, "core_id"),
    ],
)
def test_files_that_describe_no_machine_are_refused(files: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        machine_of(files)
