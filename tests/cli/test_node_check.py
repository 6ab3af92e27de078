"""`bindery node check`: checkpoint files of a kubelet are verified, shown, compared, converted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bindery.nodecore.checkpoints import allocations, claims, devices
from bindery.nodecore.checkpoints.allocations import AllocatedPod, Requirements
from bindery.nodecore.checkpoints.claims import ClaimDevice, PreparedClaim
from bindery.nodecore.checkpoints.cpu import CpuCheckpointV1, CpuCheckpointV2, CpuCheckpointV3
from bindery.nodecore.checkpoints.memory import MemoryCheckpoint
from bindery.nodecore.cpusets import parse_cpus
from bindery.nodecore.numamemory import Block, MemoryTable, NumaNodeState
from tests.commandline import CommandLine

CPU = CpuCheckpointV2("static", "0-3", {"pod-uid": {"app": "4-5"}})
MEMORY = MemoryCheckpoint(
    "Static",
    {0: NumaNodeState(1, {"memory": MemoryTable(100, 10, 90, 40, 50)}, (0,))},
    {"pod-uid": {"app": (Block((0,), "memory", 40),)}},
)
DEVICES = devices.DeviceCheckpoint(
    (devices.DeviceEntry("pod-uid", "app", "vendor/gpu", {0: ("gpu-1",)}, b""),),
    {"vendor/gpu": ("gpu-0", "gpu-1")},
)
CLAIM = PreparedClaim(
    "uid", "big", "default", frozenset(["pod-uid"]), {"driver": (ClaimDevice("pool", "gpu-0"),)}
)
ALLOCATED = {"pod-uid": AllocatedPod({"app": Requirements({"cpu": "2"}, {"cpu": "1"})})}

FILES = {
    "cpu_manager_state": CPU.encode(),
    "memory_manager_state": MEMORY.encode(),
    "kubelet_internal_checkpoint": DEVICES.encode(),
    "dra_manager_state": claims.encode((CLAIM,)),
    "allocated_pods_state": allocations.encode(ALLOCATED),
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    for name, blob in FILES.items():
        (tmp_path / name).write_bytes(blob)
    return {name: str(tmp_path / name) for name in FILES}


def test_every_kind_of_file_is_shown(files: dict[str, str], command_line: CommandLine) -> None:
    done = command_line("node", "check", *files.values())

    assert done.returncode == 0, done.stdout
    for name, state in (
        ("cpu_manager_state", "version 2, policy static, intact"),
        ("memory_manager_state", "version 1, policy Static, intact"),
        ("kubelet_internal_checkpoint", "version 2, policy -, intact"),
        ("dra_manager_state", "version 1, policy -, intact"),
        ("allocated_pods_state", "version 1, policy -, intact"),
    ):
        assert f"{files[name]}: {name}, {state}" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    for line in (
        "pod-uid app cpus 4-5",
        "pod-uid app memory 40 on NUMA nodes 0",
        "- - memory of NUMA node 0 50 of 90 free",
        "pod-uid app vendor/gpu gpu-1",
        "pod-uid - claim default/big driver: pool/gpu-0",
        "pod-uid app cpu limit 2",
    ):
        assert line.split() in lines


def test_a_wrong_checksum_is_reported_and_the_next_file_is_shown(
    files: dict[str, str], tmp_path: Path, command_line: CommandLine
) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(FILES["memory_manager_state"].replace(b'"free":50', b'"free":60'))

    done = command_line("node", "check", str(bad), files["cpu_manager_state"])

    assert done.returncode == 1
    assert "checkpoint is corrupted: the file has" in done.stdout
    assert "intact" in done.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "is no checkpoint of a kubelet"),
        (b"{", "unexpected end of JSON input"),
        (b"\xff", "the file is not text"),
        (
            CpuCheckpointV2("static", "0-4", {"pod": {"app": "4-5"}}).encode(),
            "container app of pod pod shares the CPUs 4 with the shared pool",
        ),
        (
            CpuCheckpointV2("static", "0", {"a": {"app": "4-5"}, "b": {"app": "5"}}).encode(),
            "pods a and b both have the CPUs 5",
        ),
        (
            MemoryCheckpoint(
                "Static",
                {0: NumaNodeState(1, {"memory": MemoryTable(100, 10, 90, 40, 60)}, (0,))},
                {},
            ).encode(),
            "memory of NUMA node 0: 40 reserved and 60 free are not 90",
        ),
        (
            replace(MEMORY, entries={"pod": {"app": (Block((7,), "memory", 1),)}}).encode(),
            "container app of pod pod has memory on NUMA node 7, which is not there",
        ),
    ],
)
def test_errors_of_a_file_are_reported(
    content: bytes, message: str, tmp_path: Path, command_line: CommandLine
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)

    done = command_line("node", "check", str(path))

    assert done.returncode == 1
    assert message in done.stdout


def test_only_the_difference_of_two_files_is_shown(
    files: dict[str, str], tmp_path: Path, command_line: CommandLine
) -> None:
    after = tmp_path / "after"
    after.write_bytes(CpuCheckpointV2("static", "0-3", {"pod-uid": {"app": "6-7"}}).encode())

    done = command_line("node", "check", "--compare", files["cpu_manager_state"], str(after))
    same = command_line("node", "check", "--compare", *[files["cpu_manager_state"]] * 2)
    other = command_line(
        "node", "check", "--compare", files["cpu_manager_state"], files["memory_manager_state"]
    )

    assert done.returncode == 1
    assert [line.split() for line in done.stdout.splitlines()][1:] == [
        ["+", "pod-uid", "app", "cpus", "6-7"],
        ["-", "pod-uid", "app", "cpus", "4-5"],
    ]
    assert (same.returncode, same.stdout) == (0, "The files have the same content.\n")
    assert other.returncode == 2


def test_a_file_is_converted_to_any_version(
    files: dict[str, str], tmp_path: Path, command_line: CommandLine
) -> None:
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps({"container-id": ["pod-uid", "app"]}))
    versions = {number: tmp_path / f"v{number}" for number in (1, 2, 3)}

    def convert(source: Path, version: int) -> int:
        return command_line(
            *("node", "check", "--convert-to", str(version), "--containers", str(ids)),
            *("--to", str(versions[version]), str(source)),
        ).returncode

    assert convert(Path(files["cpu_manager_state"]), 1) == 0
    assert convert(versions[1], 3) == 0
    assert convert(versions[3], 2) == 0
    assert versions[1].read_bytes() == (
        CpuCheckpointV1("static", "0-3", {"container-id": "4-5"}).encode()
    )
    assert versions[2].read_bytes() == FILES["cpu_manager_state"]
    assert command_line("node", "check", *map(str, versions.values())).returncode == 0


def test_files_of_the_memory_manager_have_two_versions(
    files: dict[str, str], tmp_path: Path, command_line: CommandLine
) -> None:
    before = files["memory_manager_state"]
    second, first = tmp_path / "second", tmp_path / "first"
    for version, source, to in ((2, before, second), (1, str(second), first)):
        done = command_line("node", "check", "--convert-to", str(version), "--to", str(to), source)
        assert done.returncode == 0, done.stdout

    assert f"{second}: memory_manager_state, version 2" in (
        command_line("node", "check", str(second)).stdout
    )
    assert first.read_bytes() == FILES["memory_manager_state"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--convert-to", "1", "--to", "{out}", "{cpu}"], 1, "no container id is given"),
        (["--convert-to", "2", "{cpu}"], 2, "takes one file, and --to FILE"),
        (["--convert-to", "3", "--to", "{out}", "{memory}"], 2, "its versions: 1, 2"),
        (["--convert-to", "2", "--to", "{out}", "{pods}"], 1, "no place for the CPUs of whole"),
        (["--compare", "{cpu}"], 2, "--compare takes two files"),
        (["{missing}"], 2, "No such file or directory"),
        (["--convert-to", "1", "--to", "{out}", "--containers", "{cpu}", "{cpu}"], 2, "not of the"),
    ],
)
def test_impossible_conversions_and_files_are_reported(
    arguments: list[str],
    code: int,
    message: str,
    files: dict[str, str],
    tmp_path: Path,
    command_line: CommandLine,
) -> None:
    pods = tmp_path / "pods"
    pods.write_bytes(CpuCheckpointV3("static", "0-3", {}, {"uid": parse_cpus("4")}).encode())
    places = {
        "cpu": files["cpu_manager_state"],
        "memory": files["memory_manager_state"],
        **{name: str(tmp_path / name) for name in ("out", "pods", "missing")},
    }

    done = command_line("node", "check", *(one.format(**places) for one in arguments))

    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert not (tmp_path / "out").exists()


def test_a_directory_means_the_checkpoints_in_it(
    files: dict[str, str], tmp_path: Path, command_line: CommandLine
) -> None:
    below = tmp_path / "device-plugins"
    below.mkdir()
    devices_file = Path(files.pop("kubelet_internal_checkpoint"))
    moved = devices_file.rename(below / devices_file.name)
    (tmp_path / "config.yaml").write_text("of no interest")

    done = command_line("node", "check", str(tmp_path))

    assert done.returncode == 0, done.stdout
    assert all(f"{path}: " in done.stdout for path in (*files.values(), str(moved)))
    assert "config.yaml" not in done.stdout


def test_a_directory_without_checkpoints_is_an_error(
    tmp_path: Path, command_line: CommandLine
) -> None:
    done = command_line("node", "check", str(tmp_path))

    assert done.returncode == 2
    assert "no checkpoint of a kubelet is in it" in done.stderr
