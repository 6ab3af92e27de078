"""How a reservation pod finds the GPU that it was given."""

import os
from pathlib import Path

import pytest

from bindery.nodeagent.reservation import NoDeviceError, visible_device

UUID = "GPU-6f0b1d2e-5a3c-4c1d-9d57-0a1b2c3d4e5f"


@pytest.mark.parametrize(
    ("said", "device"),
    [(UUID, UUID), ("3", "3"), (f"nvidia.com/gpu={UUID}", UUID), (f" {UUID} ", UUID)],
)
async def test_the_variable_names_the_gpu(said: str, device: str) -> None:
    assert await visible_device({"NVIDIA_VISIBLE_DEVICES": said}) == device


@pytest.mark.parametrize("said", [f"{UUID},{UUID}", "0,1", "GPU-x", "../etc", "12345"])
async def test_any_number_of_gpus_other_than_one_is_an_error(said: str) -> None:
    with pytest.raises(NoDeviceError, match="one GPU should be visible"):
        await visible_device({"NVIDIA_VISIBLE_DEVICES": said})


@pytest.mark.parametrize("said", ["", "void", "none", "all"])
async def test_the_driver_is_queried_if_the_variable_names_no_gpu(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho {UUID}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    assert await visible_device({"NVIDIA_VISIBLE_DEVICES": said}) == UUID


async def test_no_gpu_is_found_without_variable_and_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NoDeviceError, match="there is no nvidia-smi"):
        await visible_device({})
