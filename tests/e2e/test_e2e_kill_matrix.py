"""Every plugin by every write by everything that can befall it: nothing leaks, and the work ends.

Run `pytest -s tests/e2e/test_e2e_kill_matrix.py` to see the tables; they are also part of what a
failure reports.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from killmatrix import steps_of, strike_all, table
from matrixarena import Arena
from matrixground import Corners, Ground
from matrixworlds import WORLDS

from bindery.controlplane.components import Components
from bindery.controlplane.install import Installation
from bindery.kube.client import Client

# Some fifty gangs and fifteen binders, of which each can wait for two minutes when it goes wrong. A
# world takes a minute or less where two cores are half busy.
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.usefixtures("scheduler", "plugin_path"),
    pytest.mark.timeout(1800),
]


@pytest.fixture
async def ground(
    client: Client, installation: Installation, tmp_path: Path, pool: str
) -> AsyncIterator[Ground]:
    arena = Arena(installation.kubeconfigs["binder"], tmp_path / "arena")
    async with arena.serve():
        kubeconfigs = {**installation.kubeconfigs, "binder": arena.kubeconfig}
        with Components(replace(installation, kubeconfigs=kubeconfigs)) as components:
            yield Ground(client, pool, arena, components, tmp_path / "journal")


@pytest.mark.parametrize("name", WORLDS)
async def test_nothing_leaks_and_the_work_ends_whatever_befalls_a_write(
    name: str, ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    world = WORLDS[name]
    await ground.start_binder(world)
    async with Corners(world, ground).open() as corners:
        steps = await steps_of(corners)
        assert len(steps) > 2, "a pod that was bound needs a binding, and the plugin writes, too"
        outcomes = await strike_all(corners, steps)

    with capsys.disabled():
        print(f"\n{table(name, outcomes)}")
    failed = {cell: text for cell, text in outcomes.items() if text != "ok"}
    assert not failed, "\n".join(f"{step}, {blow}: {text}" for (step, blow), text in failed.items())
