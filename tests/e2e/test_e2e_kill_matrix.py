"""Every plugin by every write by everything that can befall it: nothing leaks, and the work ends.

Run `pytest -s tests/e2e/test_e2e_kill_matrix.py` to see the tables; they are also part of what a
failure reports.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from killmatrix import Arena, Blow, Ground, Step, World, steps_of, strike, table
from matrixworlds import WORLDS

from bindery.controlplane.components import Components
from bindery.controlplane.install import Installation
from bindery.kube.client import Client

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "plugin_path")]

_AT_ONCE = 6
"""Cells without a kill share a binder, so that it works on several Statements meanwhile."""


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
    binder = await ground.start_binder(world)
    steps = await steps_of(world, ground)
    assert len(steps) > 2, "a pod that was bound needs a binding, and the plugin writes, too"
    outcomes: dict[tuple[Step, Blow], str] = {}
    places = asyncio.Semaphore(_AT_ONCE)

    async def quietly(step: Step, blow: Blow) -> None:
        async with places:
            outcomes[step, blow] = await _outcome(world, ground, step, blow)

    async def _outcome(world: World, ground: Ground, step: Step, blow: Blow) -> str:
        nonlocal binder
        try:
            running = await strike(world, ground, step, blow, binder)
        except (AssertionError, TimeoutError) as error:
            if not binder.process.is_running:
                binder = await ground.start_binder(world)
            return f"{type(error).__name__}: {error}"
        if blow.kills:
            binder = running
        return "ok"

    gentle = [blow for blow in Blow if not blow.kills]
    await asyncio.gather(*(quietly(step, blow) for step in steps for blow in gentle))
    for step in steps:
        for blow in Blow:
            if blow.kills:
                await quietly(step, blow)

    ordered = {(step, blow): outcomes[step, blow] for step in steps for blow in Blow}
    with capsys.disabled():
        print(f"\n{table(name, ordered)}")
    failed = {cell: text for cell, text in ordered.items() if text != "ok"}
    assert not failed, "\n".join(f"{step}, {blow}: {text}" for (step, blow), text in failed.items())
