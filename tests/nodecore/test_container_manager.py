"""The container manager: managers in order, cgroups written through files, hooks of containers."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bindery.nodecore.cgroups import names
from bindery.nodecore.cgroups.manager import CgroupError, CgroupManager
from bindery.nodecore.cgroups.names import CgroupName
from bindery.nodecore.cgroups.system import (
    TUNABLES,
    Mount,
    Status,
    check_requirements,
    subsystems,
    tunables_to_write,
)
from bindery.nodecore.cgroups.values import CgroupValues
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.container_manager import ContainerManager, NodeConfig
from bindery.nodecore.cpu.manager import Isolation
from bindery.nodecore.devices.calls import PluginOptions
from bindery.nodecore.devices.options import RunOptions
from bindery.nodecore.devices.registration import check_plugin, check_request
from bindery.nodecore.devices.state import Device
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.features import Features
from bindery.nodecore.lifecycle import CpusetConfig
from bindery.nodecore.machine import HugePages, uniform
from bindery.nodecore.plugins import PluginError
from bindery.nodecore.pods import Container, QosClass
from tests.nodecore import answering
from tests.nodecore.nodes import MIB, CountingStore, FakeNode, container, pod, whole_pod

GPU = "vendor.com/gpu"

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
    stores = CheckpointManager(CountingStore()), CheckpointManager(CountingStore())
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


def test_the_node_reports_the_remaining_resources() -> None:
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
def test_contradictory_settings_prevent_the_start(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        started(replace(CONFIG, **changes))
    started(replace(CONFIG, has_swap=True, fail_swap_on=False))


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


def test_cgroup_v1_uses_other_files() -> None:
    tree = FakeTree()
    of = CgroupManager(tree, names.SYSTEMD, 1)
    of.create(POD, CgroupValues(cpu_shares=100))

    path = "/kubepods.slice/kubepods-pod1.slice"
    assert tree.files[path] == {"cpu.shares": "100"}
    assert of.cgroup_name(path) == POD
    assert of.memory_usage(POD) == 0


def test_errors_describe_the_problem_of_a_cgroup() -> None:
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


def test_cgroups_of_qos_classes_are_created_once_and_then_updated() -> None:
    node = FakeNode()
    of, tree = started(node=node), FakeTree()
    cgroups = CgroupManager(tree, names.SYSTEMD, 2)
    of.update_qos_cgroups(cgroups)
    node.pods = [pod(Container("app", {"cpu": 4000}, {}), uid="busy")]
    of.update_qos_cgroups(cgroups)

    burstable = "/kubepods.slice/kubepods-burstable.slice"
    assert tree.files[burstable]["cpu.weight"] == str(1 + (4096 - 2) * 9999 // 262142)
    assert sorted(tree.files)[1:] == [
        "/kubepods.slice",
        "/kubepods.slice/kubepods-besteffort.slice",
        burstable,
    ]


def test_memory_can_be_protected_from_lower_qos_classes() -> None:
    asking = pod(container(cpu=1, memory_mib=1000), uid="big")
    of = started(replace(CONFIG, qos_reserved={"memory": "50%"}), FakeNode([asking]))

    assert of.qos_cgroups()[QosClass.BURSTABLE].memory_limit == 1300 * MIB
    with pytest.raises(ConfigurationError, match='cannot reserve "cpu" resource'):
        started(replace(CONFIG, qos_reserved={"cpu": "50%"}))


def test_pods_have_cgroups_of_their_own() -> None:
    asking = pod(container(cpu=2), uid="a-b")
    of, tree = started(replace(CONFIG, pod_pids_limit=100)), FakeTree()
    cgroups = CgroupManager(tree, names.SYSTEMD, 2)
    of.update_qos_cgroups(cgroups)
    pods = of.new_pod_container_manager(cgroups)
    pods.ensure_exists(asking)
    path = "/kubepods.slice/kubepods-poda_b.slice"

    assert pods.exists(asking)
    assert pods.name(asking) == (("kubepods", "poda-b"), path)
    assert tree.files[path]["pids.max"] == "100"
    assert tree.files[path]["cpu.max"] == "200000 100000"
    assert pods.pods() == {"a-b": ("kubepods", "poda-b")}
    assert pods.pod_uid(path) == "a-b"
    assert pods.pod_uid("/system.slice") is None
    pods.reduce_cpu_limits(pods.name(asking)[0])
    assert tree.files[path]["cpu.weight"] == "1"
    pods.destroy(pods.name(asking)[0])
    assert not pods.exists(asking)


def test_pods_share_one_cgroup_if_pod_cgroups_are_off() -> None:
    of, tree = started(replace(CONFIG, cgroups_per_qos=False)), FakeTree()
    cgroups = CgroupManager(tree, names.SYSTEMD, 2)
    of.update_qos_cgroups(cgroups)
    pods = of.new_pod_container_manager(cgroups)
    pods.ensure_exists(pod())

    assert list(tree.files) == ["/"]
    assert pods.exists(pod())
    assert pods.name(pod()) == ((), "")
    assert (pods.pods(), pods.pod_uid("/kubepods"), of.pod_cgroup_root()) == ({}, None, "/")


@pytest.mark.parametrize(
    ("version", "files", "cpu", "memory"),
    [
        (
            1,
            {"cpu.shares": "512", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
            CgroupValues(cpu_shares=512, cpu_quota_us=-1, cpu_period_us=100000),
            {"memory.limit_in_bytes": "4096"},
        ),
        (
            2,
            {"cpu.weight": "1", "cpu.max": "max 100000"},
            CgroupValues(cpu_shares=2, cpu_quota_us=-1, cpu_period_us=100000),
            {"memory.max": "4096"},
        ),
    ],
)
def test_the_values_of_a_cgroup_are_read(
    version: int, files: dict[str, str], cpu: CgroupValues, memory: dict[str, str]
) -> None:
    tree = FakeTree({"/": {}, "/kubepods/pod1": {**files, **memory}})
    of = CgroupManager(tree, names.CGROUPFS, version)

    assert of.config(POD, "cpu") == cpu
    assert of.config(POD, "memory") == CgroupValues(memory_limit=4096)
    with pytest.raises(CgroupError, match="unsupported resource pids"):
        of.config(POD, "pids")
    tree.files["/kubepods/pod1"] = {}
    with pytest.raises(CgroupError, match="failed to read cpu of cgroup"):
        of.config(POD, "cpu")


V1 = [
    Mount("/cgroup/cpuset", "cgroup", ("rw", "cpuset")),
    Mount("/cgroup/cpu", "cgroup", ("rw", "cpu", "cpuacct")),
]


def test_all_controllers_must_be_mounted() -> None:
    bare = subsystems(V1, is_unified=False)
    full = subsystems([*V1, Mount("/cgroup/memory", "cgroup", ("memory",))], is_unified=False)

    assert bare.mount_points["cpuacct"] == "/cgroup/cpu"
    with pytest.raises(ConfigurationError, match=r"Cgroup subsystem not mounted: \[memory\]"):
        started(replace(CONFIG, subsystems=bare))
    assert check_requirements(full, {"/cgroup/cpu/cpu.cfs_quota_us"}.__contains__) == Status(
        "CPU hardcapping unsupported"
    )
    assert check_requirements(full, lambda _path: True) == Status()
    unified = subsystems([Mount("/sys/fs/cgroup", "cgroup2")], is_unified=True)
    of = started(replace(CONFIG, subsystems=unified))
    assert (of.mounted_subsystems(), of.status()) == (unified, Status())


def test_kernel_settings_are_changed_or_reported_as_errors() -> None:
    actual = {**TUNABLES, "vm.panic_on_oom": 1}

    assert tunables_to_write(actual.__getitem__) == {"vm.panic_on_oom": 0}
    with pytest.raises(ConfigurationError, match=r"invalid kernel flag: vm\.panic_on_oom"):
        tunables_to_write(actual.__getitem__, protect_defaults=True)


def test_device_plugins_of_the_watcher_are_validated() -> None:
    check_plugin("vendor.com/gpu", ["v1beta1"])
    with pytest.raises(PluginError, match="not among plugin supported versions"):
        check_plugin("vendor.com/gpu", ["v2"])
    with pytest.raises(PluginError, match='the ResourceName "gpu" is invalid'):
        check_plugin("gpu", ["v1beta1"])


@pytest.mark.parametrize(
    ("version", "resource", "message"),
    [
        ("v1", "vendor.com/gpu", 'requested API version "v1" is not supported'),
        ("v1beta1", "cpu", 'the ResourceName "cpu" is invalid'),
        ("v1beta1", "node.kubernetes.io/gpu", "is invalid"),
        ("v1beta1", "requests.vendor.com/gpu", "is invalid"),
        ("v1beta1", "vendor.com/-gpu", "is invalid"),
        ("v1beta1", f"{'a' * 250}/gpu", "is invalid"),
    ],
)
def test_device_plugins_that_cannot_be_served_are_refused(
    version: str, resource: str, message: str
) -> None:
    check_request("v1beta1", "vendor.com/gpu")
    with pytest.raises(PluginError, match=message):
        check_request(version, resource)


def test_a_container_gets_the_options_that_its_device_plugin_returns() -> None:
    plain = container(cpu=1)
    amounts = {**plain.limits, "vendor.com/gpu": 1}
    asking = pod(replace(plain, requests=amounts, limits=amounts), uid="gpus")
    of = started(node=FakeNode([asking]))
    of.devices.register("vendor.com/gpu")
    of.devices.update("vendor.com/gpu", [Device("gpu-0", (0,))])
    assert answering.admit(of, asking).admit

    found = of.resources(
        asking, asking.containers[0], lambda answer: RunOptions(envs={"GPU": answer.decode()})
    )
    assert found.envs == {"GPU": "gpu-0"}
    assert of.system_cgroups_limit() == {"cpu": 0}
    assert of.capacity() == {"cpu": 8000, "memory": 2000 * MIB}


def test_a_preference_is_followed_without_the_loss_of_a_place() -> None:
    """The init container leaves its preferred device to the other one, with the same CPUs."""
    wanted = replace(container(cpu=2), limits={**container(cpu=2).limits, GPU: 1})
    wanted = replace(wanted, requests=wanted.limits)
    asking = pod(wanted, uid="first", init=[replace(wanted, name="init")])
    other = pod(container(cpu=5), uid="other")
    node = FakeNode([asking])
    config = replace(CONFIG, cpu_policy="static", topology_policy="single-numa-node")
    of = started(config, node)
    of.devices.register(GPU, PluginOptions(prefers=True))
    of.devices.update(GPU, [Device(f"gpu-{one}", (one // 2,)) for one in range(4)])
    assert of.admit(asking).admit
    question = of.devices.question("first")
    assert question is not None
    assert question.container == "init"

    node.pods = [asking, other]
    assert not of.admit(other).admit  # the CPUs of the first pod are not free meanwhile
    node.pods = [asking]
    of.devices.prefer(question, [max(question.available)])
    assert of.admit_again(asking).admit

    chosen = {call.container: call.ids for call in of.devices.calls("first")}
    assert of.devices.question("first") is None
    assert chosen == {"init": chosen["app"], "app": chosen["init"]}
    assert of.cpu.state.containers["first"]["init"] == of.cpu.state.containers["first"]["app"]


def test_containers_of_a_pod_may_share_its_cpus() -> None:
    asking = whole_pod(container("own", cpu=2), Container("shares"), cpu=4, memory_mib=300)
    features = Features(pod_level_resource_managers=True)
    config = replace(CONFIG, features=features, topology_scope="pod")
    of = started(config, FakeNode([asking]))
    assert of.admit(asking).admit
    own, shares = asking.containers

    assert of.cpu.isolation(asking, own) == Isolation.CONTAINER
    assert of.cpu.isolation(asking, shares) == Isolation.POD
    assert of.cpu.isolation(pod(uid="other"), own) == Isolation.HOST
    assert of.container_has_exclusive_cpus(asking, own)
    assert not of.has_exclusive_cpus(asking)
