"""Every plugin, every write and every kind of failure: nothing leaks, and the work completes.

Run `pytest -s tests/e2e/test_kill_matrix.py` to see the tables; they are also part of what a
failure reports.
"""

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bindery.kube.client import Client
from devcluster.components import Components
from devcluster.install import Installation
from tests.e2e.killmatrix import steps_of, strike_all, table
from tests.e2e.matrixarena import Arena
from tests.e2e.matrixground import Corners, Ground
from tests.e2e.matrixneighbours import NEIGHBOURS, Merger
from tests.e2e.matrixworld import Phase, Step, World
from tests.e2e.matrixworlds import WORLDS
from tests.e2e.support import scheduler_configuration
from tests.e2e.traps import ready
from tests.sizes import IS_LONG, sample

# Some fifty gangs and fifteen binders, of which each can wait for two minutes when it goes wrong. A
# world takes a minute or less where two cores are half busy.
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.usefixtures("scheduler", "plugin_path"),
    pytest.mark.timeout(1800),
]


_SAMPLE = {Phase.REFUSED: 2, Phase.BOUND: 2, Phase.GONE: 1}
"""How many steps of a phase get blows in a short run: histories strike at every step."""


@asynccontextmanager
async def binder_attacked(
    client: Client, installation: Installation, directory: Path, pool: str
) -> AsyncIterator[Ground]:
    arena = Arena(installation.kubeconfigs["binder"], directory / "arena")
    async with arena.serve():
        kubeconfigs = {**installation.kubeconfigs, "binder": arena.kubeconfig}
        with Components(replace(installation, kubeconfigs=kubeconfigs)) as components:
            yield Ground(client, pool, arena, components, directory / "journal")


@pytest.fixture
async def ground(
    client: Client, installation: Installation, tmp_path: Path, pool: str
) -> AsyncIterator[Ground]:
    async with binder_attacked(client, installation, tmp_path, pool) as ground:
        yield ground


@pytest.fixture
async def shared_ground(
    client: Client, installation: Installation, tmp_path: Path, pool: str
) -> AsyncIterator[Ground]:
    """A ground with a scheduler of its own, whose requests carry three Statements."""
    pool = f"{pool}-shared"
    merger = Merger(installation.kubeconfigs["scheduler"], tmp_path / "merger")
    async with merger.serve():
        kubeconfigs = {**installation.kubeconfigs, "scheduler": merger.kubeconfig}
        with Components(replace(installation, kubeconfigs=kubeconfigs)) as components:
            # No gang comes back to the node that refuses before the last one has failed there.
            configuration = scheduler_configuration(pool).model_copy(
                update={"failed_node_cooldown_seconds": 600.0}
            )
            await ready(components.start_scheduler(configuration, name="merged"))
            async with binder_attacked(client, installation, tmp_path, pool) as ground:
                ground.arena.notes_status = True
                yield ground


@pytest.mark.parametrize("name", sample(3, WORLDS))
async def test_nothing_leaks_and_the_work_completes_despite_any_failure_of_a_write(
    name: str, ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    await attack(name, WORLDS[name], ground, capsys)


@pytest.mark.parametrize("name", sample(1, NEIGHBOURS))
async def test_each_gang_of_a_bind_request_is_bound_whole_despite_any_failure_of_a_write(
    name: str, shared_ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    await attack(name, NEIGHBOURS[name], shared_ground, capsys)


async def attack(
    name: str, world: World, ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    """Deal blows at the writes of `world`; at some of them if there are many in a short run."""
    await ground.start_binder(world)
    async with Corners(world, ground).open() as corners:
        steps = await steps_of(corners)
        assert len(steps) > 2, "a pod that was bound needs a binding, and the plugin writes, too"
        if not IS_LONG:
            steps = some_of(steps)
        outcomes = await strike_all(corners, steps)

    with capsys.disabled():
        print(f"\n{table(name, outcomes)}")
    failed = {cell: text for cell, text in outcomes.items() if text != "ok"}
    assert not failed, "\n".join(f"{step}, {blow}: {text}" for (step, blow), text in failed.items())


def some_of(steps: Sequence[Step]) -> list[Step]:
    """Return some steps of each phase, others in each run, and all writes of status."""
    by_phase: defaultdict[Phase, list[Step]] = defaultdict(list)
    for step in steps:
        by_phase[step.phase].append(step)
    chosen: list[Step] = []
    for phase, found in by_phase.items():
        status = [step for step in found if "bindrequests" in step.path]
        others = [step for step in found if step not in status]
        count = min(_SAMPLE[phase], len(others))
        chosen += [*random.sample(others, count), *status]
    return [step for step in steps if step in chosen]
