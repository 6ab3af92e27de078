"""The hardware of a Linux machine, as cAdvisor reads it from /sys/devices/system.

For what must know a real node's zones. The files are passed in, so that they may be those of
another machine.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from bindery.nodecore.cpusets import parse_cpus
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.machine import Core, HugePages, Machine, NumaNode

PATTERNS: Final = (
    "node/node*/cpulist",
    "node/node*/meminfo",
    "node/node*/distance",
    "node/node*/hugepages/hugepages-*kB/nr_hugepages",
    "cpu/cpu*/topology/physical_package_id",
    "cpu/cpu*/topology/core_id",
    "cpu/cpu*/cache/index*/level",
    "cpu/cpu*/cache/index*/id",
    "cpu/cpu*/cache/index*/shared_cpu_list",
)
"""The files that are needed, below /sys/devices/system, as patterns of a shell."""
_LOCAL_CACHES: Final = 2
"""Caches of a higher level are shared by cores."""
_KIB: Final = 1024

Files = Mapping[str, str]
"""Path below /sys/devices/system -> content."""


def machine_of(files: Files) -> Machine:
    """Return the machine that `files` describe; the paths are those of `PATTERNS`.

    Raises:
        ConfigurationError: a file is missing, or cannot be read; a machine without NUMA has no
            `node0`.
    """
    try:
        machine = Machine(tuple(_numa_node(files, number) for number in _numa_nodes(files)))
    except (KeyError, ValueError) as error:
        raise ConfigurationError(f"/sys/devices/system: {error}") from error
    if not machine.nodes:
        raise ConfigurationError("/sys/devices/system: there is no node0")
    return machine


def _numa_nodes(files: Files) -> list[int]:
    return sorted(_number(path, "node") for path in files if path.endswith("/cpulist"))


def _numa_node(files: Files, number: int) -> NumaNode:
    directory = f"node/node{number}"
    threads: dict[tuple[int, int], list[int]] = {}
    all_cpus = parse_cpus(files[f"{directory}/cpulist"].strip())
    for cpu in sorted(all_cpus):
        topology = f"cpu/cpu{cpu}/topology"
        socket = int(files[f"{topology}/physical_package_id"])
        threads.setdefault((socket, int(files[f"{topology}/core_id"])), []).append(cpu)
    return NumaNode(
        id=number,
        cores=tuple(
            Core(socket, tuple(cpus), _uncore_cache(files, cpus[0], len(all_cpus)))
            for (socket, _), cpus in threads.items()
        ),
        memory_bytes=_memory(files[f"{directory}/meminfo"]),
        huge_pages=tuple(sorted(_huge_pages(files, directory), key=lambda one: one.size_kib)),
        distances=tuple(map(int, files[f"{directory}/distance"].split())),
    )


def _memory(text: str) -> int:
    """Return MemTotal of a NUMA node in bytes, from a line such as "Node 0 MemTotal: 2048 kB"."""
    for line in text.splitlines():
        fields = line.split()
        if fields[2:3] == ["MemTotal:"]:
            return int(fields[3]) * _KIB
    raise ValueError("meminfo of a node has no MemTotal")


def _huge_pages(files: Files, directory: str) -> Iterator[HugePages]:
    for path, content in files.items():
        parts = PurePosixPath(path).parts
        if path.startswith(f"{directory}/hugepages/"):
            size_kib = int(parts[-2].removeprefix("hugepages-").removesuffix("kB"))
            yield HugePages(size_kib, int(content))


def _uncore_cache(files: Files, cpu: int, cpus_of_node: int) -> int | None:
    """Return the id of the cache that some cores of a NUMA node share; None if all or none do."""
    caches = (path.parent for path in map(PurePosixPath, files) if path.name == "level")
    for cache in sorted(one for one in caches if one.parts[1] == f"cpu{cpu}"):
        shared = parse_cpus(files[f"{cache}/shared_cpu_list"].strip())
        if int(files[f"{cache}/level"]) > _LOCAL_CACHES and len(shared) != cpus_of_node:
            return int(files[f"{cache}/id"])
    return None


def _number(path: str, prefix: str) -> int:
    return int(PurePosixPath(path).parent.name.removeprefix(prefix))
