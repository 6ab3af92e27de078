"""The container manager: managers in order, cgroups written through files, hooks of containers."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from nodes import MIB, CountingStore, FakeNode, container, pod

from bindery.nodecore.cgroups import names
from bindery.nodecore.cgroups.manager import CgroupError, CgroupManager
from bindery.nodecore.cgroups.names import CgroupName
from bindery.nodecore.cgroups.values import CgroupValues
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.container_manager import ContainerManager, NodeConfig
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.lifecycle import CpusetConfig
from bindery.nodecore.machine import HugePages, uniform
from bindery.nodecore.pods import Container, QosClass

CONFIG = NodeConfig(
    uniform(
        sockets=2,
        cores_per_numa=4,
        memory_bytes_per_numa=1000 * MIB,
        huge_pages_per_numa=(HugePages(2048, 10),),
    ),
    {"cpu": 8000, "memory": 2000 * MIB},
    system_reserved={"cpu": 500, "memory": 100 * MIB},
    kube_reserved={"cpu": 500},
    hard_eviction={"memory.available": str(100 * MIB)},
    cpu_policy="static",
    memory_policy="Static",
    reserved_memory=[(0, {"memory": 200 * MIB})],
    topology_policy="single-numa-node",
    cgroup_driver="systemd",
)


def started(config: NodeConfig = CONFIG, node: FakeNode | None = None) -> ContainerManager:
    stores = [CheckpointManager(CountingStore()) for _ in range(2)]
    made = ContainerManager(config, node or FakeNode(), *stores, lambda: 0.0)
    assert made.start() is None
    return made


def test_a_pod_gets_cpus_and_memory_of_one_node_and_its_cgroup() -> None:
    node = FakeNode([pod(container(cpu=3, memory_mib=500), uid="a-b")])
    of = started(node=node)
    (asking,) = node.pods

    assert of.admit(asking).admit
    assert of.lifecycle.pre_create(asking, asking.containers[0]) == CpusetConfig("1-3", "0")
    of.lifecycle.pre_start(asking, asking.containers[0], "id")
    of.lifecycle.post_stop("id")
    assert of.topology.affinity("a-b", "app").mask is None
    name, content = of.pod_cgroup(asking)
    assert names.to_systemd(name) == "/kubepods.slice/kubepods-poda_b.slice"
    assert (content.cpu_quota_us, content.memory_limit) == (-1, 500 * MIB)
    shared = pod(Container("app", {"cpu": 100}, {"cpu": 200}), uid="s")
    assert of.pod_cgroup(shared)[1].cpu_quota_us == 20000


def test_the_node_reports_what_is_left() -> None:
    of = started()

    assert of.node_allocatable() == {"cpu": 7000, "memory": 1800 * MIB}
    assert of.pod_cgroup_root() == "/kubepods.slice"
    assert of.qos_containers_info()[QosClass.BURSTABLE] == ("kubepods", "burstable")
    assert of.qos_cgroups()[QosClass.BEST_EFFORT] == CgroupValues(
        cpu_shares=2, huge_pages={2 * MIB: 1 << 62}
    )
    assert of.root_cgroup() == CgroupValues(1900 * MIB, 7168)
    none = started(replace(CONFIG, cpu_policy="none"))
    assert none.root_cgroup().cpus == frozenset(range(8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"has_swap": True}, "running with swap on is not supported"),
        ({"kube_reserved": {"cpu": 9000}}, "unable to reserve the required amount of CPUs"),
        ({"reserved_memory": []}, "is not equal to the value"),
        ({"topology_policy": "other"}, 'unknown policy: "other"'),
        (
            {"cpu_policy": "none", "kube_reserved": {"cpu": 9000}},
            "Expected capacity >= reservation",
        ),
    ],
)
def test_settings_that_contradict_themselves_stop_the_start(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        started(replace(CONFIG, **changes))
    assert started(replace(CONFIG, has_swap=True, fail_swap_on=False))


@dataclass
class FakeTree:
    """A tree of cgroups in memory; `immortal` processes survive a kill."""

    files: dict[str, dict[str, str]] = field(default_factory=lambda: {"/": {}})
    available: tuple[str, ...] = ("cpu", "cpuset", "memory", "pids")
    immortal: bool = False

    def controllers(self, path: str) -> tuple[str, ...]:
        return self.available if path == "/" or "bare" not in path else ("cpu",)

    def exists(self, path: str) -> bool:
        return path in self.files

    def make(self, path: str) -> None:
        self.files.setdefault(path, {})

    def remove(self, path: str) -> None:
        assert not self.children(path)
        del self.files[path]

    def children(self, path: str) -> list[str]:
        return sorted(one for one in self.files if one.rpartition("/")[0] == path)

    def read(self, path: str, file: str) -> str:
        return self.files[path].get(file, "")

    def write(self, path: str, file: str, text: str) -> None:
        self.files[path][file] = text

    def kill(self, pid: int) -> None:
        for content in self.files.values():
            if not self.immortal and content.get("cgroup.procs"):
                left = [one for one in content["cgroup.procs"].split() if one != str(pid)]
                content["cgroup.procs"] = "\n".join(left)


POD = CgroupName(("kubepods", "pod1"))


def test_cgroups_are_created_changed_and_removed() -> None:
    tree = FakeTree()
    of = CgroupManager(tree, names.CGROUPFS, 2)
    of.create(POD, CgroupValues(MIB, 1024))
    of.create(names.child(POD, "inner"), CgroupValues())

    assert tree.files["/kubepods/pod1"] == {"memory.max": str(MIB), "cpu.weight": "39"}
    assert of.exists(POD)
    of.reduce_cpu_limits(POD)
    assert tree.files["/kubepods/pod1"]["cpu.weight"] == "1"
    tree.write("/kubepods/pod1", "memory.current", "77\n")
    assert of.memory_usage(POD) == 77
    tree.write("/kubepods/pod1/inner", "cgroup.procs", "5\n6")
    assert of.pids(POD) == [5, 6]
    of.destroy(POD)
    assert not of.exists(POD)
    assert list(tree.files) == ["/"]
    of.destroy(POD)


def test_the_first_version_has_other_files() -> None:
    tree = FakeTree()
    of = CgroupManager(tree, names.SYSTEMD, 1)
    of.create(POD, CgroupValues(cpu_shares=100))

    path = "/kubepods.slice/kubepods-pod1.slice"
    assert tree.files[path] == {"cpu.shares": "100"}
    assert of.cgroup_name(path) == POD
    assert of.memory_usage(POD) == 0


def test_what_is_wrong_with_a_cgroup_is_said() -> None:
    tree = FakeTree(immortal=True)
    of = CgroupManager(tree, names.CGROUPFS, 2)

    with pytest.raises(CgroupError, match="cgroup /kubepods/pod1 doesn't exist"):
        of.update(POD, CgroupValues())
    with pytest.raises(CgroupError, match="cgroup /kubepods/pod1 doesn't exist"):
        of.validate(POD)
    bare = CgroupName(("bare",))
    of.create(bare, CgroupValues())
    with pytest.raises(CgroupError, match="missing controllers: cpuset, memory, pids"):
        of.validate(bare)
    tree.write("/bare", "cgroup.procs", "7")
    with pytest.raises(CgroupError, match="unable to kill all processes"):
        of.destroy(bare)
