"""A hollow node treats a pod as a real node does.

It is admitted or refused, with the reason and message, has the same phases and conditions, and gets
the same CPUs, memory and devices by the checkpoints of the two kubelets.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bindery.api import quantity
from bindery.kube.client import Client
from devcluster.components import Components
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.administrator import Administrator
from tests.e2e.realnode import strictnode
from tests.e2e.realnode.nodecases import ALONE, TOGETHER
from tests.e2e.realnode.nodeextras import corner
from tests.e2e.realnode.nodeplay import Checkpoints, Played, Stage
from tests.e2e.realnode.nodepods import Case
from tests.e2e.realnode.realdevices import LISTED
from tests.e2e.realnode.realpods import DEVICE
from tests.e2e.realnode.strictnode import KUBELET
from tests.e2e.realnode.strictnode import NAME as REAL
from tests.sizes import IS_LONG

pytestmark = pytest.mark.e2e

FILES = {
    "cpu": "cpu_manager_state",
    "memory": "memory_manager_state",
    "devices": "device-plugins/kubelet_internal_checkpoint",
}
HOLLOW = "hollow-0"
_SAMPLE_TOGETHER, _SAMPLE_ALONE = 8, 11
"""One of so many is in a short run."""


def chosen(table: Mapping[str, Mapping[str, Case]], step: int) -> dict[str, Case]:
    """Return the cases of a table that this run tries."""
    every = [
        (f"{group}: {name}", case) for group, cases in table.items() for name, case in cases.items()
    ]
    return dict(every if IS_LONG else islice(every, None, None, step))


CHOSEN_TOGETHER = chosen(TOGETHER, _SAMPLE_TOGETHER)
CHOSEN_ALONE = chosen(ALONE, _SAMPLE_ALONE)
CASES = CHOSEN_TOGETHER | CHOSEN_ALONE


@pytest.fixture(scope="module")
def real(cluster: RealCluster) -> Iterator[RealNode]:
    with strictnode.added(cluster) as node:
        yield node


@pytest.fixture(scope="module")
def hollow_files(
    module_components: Components,
    cluster: RealCluster,
    real: RealNode,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The checkpoints of a hollow node with the hardware and the kubelet of the real one."""
    path = "{.status.capacity['cpu','memory','ephemeral-storage','pods']}"
    text = cluster.control_plane.kubectl("get", "node", REAL, f"--output=jsonpath={path}")
    cpu, memory, storage, pods = text.split()
    state = json.loads(real.run("cat", f"/var/lib/kubelet/{FILES['memory']}"))
    zone = state["machineState"]["0"]["memoryMap"]["memory"]["total"]
    directory = tmp_path_factory.mktemp("checkpoints")
    kubelet = {name: value for name, value in KUBELET.items() if name != "registerWithTaints"}
    shape = [
        f"--cpu={cpu}",
        f"--memory={memory}",
        f"--pods={pods}",
        *("--gpus=0", "--racks=0", "--zones=0", "--remove-on-exit"),
        f"--set=ephemeralStorage={storage}",
        f"--set=numa.memory={{0: {zone}}}",
        f"--set=numa.devices={{{DEVICE}: {{-1: 2}}}}",
        "--set=numa.hugePages={2Mi: {0: 0}, 1Gi: {0: 0}}",
        *(f"--set=kubelet.{name}={json.dumps(value)}" for name, value in kubelet.items()),
        f"--checkpoints={directory}",
    ]
    module_components.start_hollow_nodes(1, shape).wait_ready()
    return directory / HOLLOW


@pytest.fixture(scope="module")
def corner_of_pods(administrator: Administrator, cluster: RealCluster) -> Iterator[str]:
    with corner(administrator, cluster) as name:
        yield name


@pytest.fixture(scope="module")
def played(
    corner_of_pods: str,
    hollow_files: Path,
    cluster: RealCluster,
    real: RealNode,
    request: pytest.FixtureRequest,
) -> dict[str, tuple[Played, Played]]:
    """Case -> what became of its pods on the real node and on the hollow one."""
    wanted = {
        item.callspec.params["case"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
        if hasattr(item, "callspec")
    }

    def real_checkpoints() -> Checkpoints:
        script = "".join(f"cat /var/lib/kubelet/{file}; echo; " for file in FILES.values())
        texts = real.run("sh", "-c", script).splitlines()
        return {name: json.loads(text) for name, text in zip(FILES, texts, strict=True)}

    def hollow_checkpoints() -> Checkpoints:
        return {name: json.loads((hollow_files / file).read_text()) for name, file in FILES.items()}

    async def play() -> dict[str, tuple[Played, Played]]:
        found: dict[str, tuple[Played, Played]] = {}
        address = cluster.control_plane.admin_kubeconfig
        async with Client.connect(address, user_agent="bindery-test/0") as client:
            for cases, alone in ((CHOSEN_TOGETHER, False), (CHOSEN_ALONE, True)):
                names = [name for name in cases if name in wanted]
                stages = (
                    Stage(client, corner_of_pods, REAL, real_checkpoints),
                    Stage(client, corner_of_pods, HOLLOW, hollow_checkpoints, is_hollow=True),
                )
                ordered = [cases[name] for name in names]
                both = await asyncio.gather(*(one.play(ordered, alone=alone) for one in stages))
                found |= dict(zip(names, zip(*both, strict=True), strict=True))
        return found

    with cluster.control_plane.network.entered():
        return asyncio.run(play())


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", CASES)
def test_a_hollow_node_treats_each_pod_as_a_real_node_does(
    played: dict[str, tuple[Played, Played]], case: str
) -> None:
    real, hollow = played[case]

    is_equal = [one.told for one in hollow.histories] == [one.told for one in real.histories]
    if CASES[case].differs:
        assert not is_equal, "take it from the differences"
        return
    assert [one.told for one in hollow.histories] == [one.told for one in real.histories]
    if real.checkpoints:
        running = {one.name for one in real.histories if one.phases[-1] == "Running"}
        is_clean = not _leftovers(real.checkpoints, running)
        assert held(hollow.checkpoints, running, is_clean=is_clean) == held(
            real.checkpoints, running, is_clean=is_clean
        )


def _leftovers(checkpoints: Checkpoints, running: set[str]) -> set[str]:
    """Return the pods of the checkpoints that do not run.

    A real kubelet removes them at its next allocation, a hollow one at once.
    """
    memory = checkpoints["memory"].get("entries") or {}
    cpus = checkpoints["cpu"].get("entries") or {}
    return {name for name in (*memory, *cpus) if name not in running}


def held(checkpoints: Checkpoints, running: set[str], *, is_clean: bool) -> dict[str, Any]:
    """Return what the running pods hold; what is left only if nothing else holds any.

    Which of equal devices a container gets, a real kubelet leaves to chance.
    """
    cpu, memory, data = checkpoints["cpu"], checkpoints["memory"], checkpoints["devices"]["Data"]
    found: dict[str, Any] = {
        "policies": (cpu["policyName"], memory["policyName"]),
        "cpus": _of(cpu, running) if is_clean else sorted(_of(cpu, running)),
        "memory": _of(memory, running),
        "devices": {
            (one["PodUID"], one["ContainerName"], one["ResourceName"]): {
                zone: len(ids) for zone, ids in one["DeviceIDs"].items()
            }
            for one in data["PodDeviceEntries"] or ()
            if one["PodUID"] in running
        },
        "registered": len(data["RegisteredDevices"][DEVICE]),
    }
    if is_clean:
        found |= {"shared": cpu["defaultCpuSet"], "zones": memory["machineState"]}
    return found


def _of(checkpoint: Mapping[str, Any], running: set[str]) -> dict[str, Any]:
    entries = checkpoint.get("entries") or {}
    return {name: entry for name, entry in entries.items() if name in running}


def test_a_hollow_node_reports_resources_features_and_labels_as_a_real_node(
    hollow_files: Path, cluster: RealCluster
) -> None:
    """Only the labels that every kubelet sets are compared."""
    real, hollow = (
        json.loads(cluster.control_plane.kubectl("get", "node", name, "--output=json"))
        for name in (REAL, HOLLOW)
    )

    def amounts(node: Any, key: str) -> dict[str, int]:
        known = node["status"][key]
        return {name: quantity.parse(text, name) for name, text in known.items() if name != LISTED}

    assert amounts(hollow, "capacity") == amounts(real, "capacity")
    assert amounts(hollow, "allocatable") == amounts(real, "allocatable")
    assert hollow["status"]["declaredFeatures"] == real["status"]["declaredFeatures"]
    assert real["metadata"]["labels"].keys() <= hollow["metadata"]["labels"].keys()
