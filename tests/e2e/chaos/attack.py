"""Directs an attack: rounds of churn under blows, each followed by a rest and a look."""

import asyncio
import re
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bindery.kube.client import Client
from bindery.kube.objects.resources import NAMESPACES
from devcluster.install import Installation
from tests.e2e.chaos.blows import Blows
from tests.e2e.chaos.churn import Churn
from tests.e2e.chaos.figures import Figures
from tests.e2e.chaos.ground import Ground
from tests.e2e.chaos.recount import Recount
from tests.e2e.chaos.rest import Rest
from tests.e2e.support import Corner

_DEFECTS = re.compile(r"Traceback|cycle failed|is a defect")


@dataclass(frozen=True)
class Plan:
    """How long and how hard."""

    seconds: float
    seed: int
    round_s: float = 150.0
    """How long churn and blows go on before all comes to rest."""
    blow_every_s: float = 5.0
    ends_api_server: bool = True
    """Not where other tests share the API server."""


async def attack(installation: Installation, plan: Plan) -> Figures:
    """Attack an installation for the time of `plan`; return the counts and the findings."""
    figures, random = Figures(plan.seed), Random(plan.seed)  # no secrets
    plane = installation.control_plane
    name = f"chaos-{plan.seed:x}"
    async with Client.connect(plane.admin_kubeconfig, user_agent="bindery-chaos/0") as client:
        await client.create(NAMESPACES, {"metadata": {"name": name}})
        ground = Ground(Corner(client, name, name), installation)
        async with ground.stand():
            churn = Churn(ground, random, figures)
            recount = Recount(ground, churn, figures)
            rest = Rest(ground, churn, recount, figures)
            blows = Blows(
                ground,
                random,
                figures,
                plan.blow_every_s,
                ends_api_server=plan.ends_api_server,
            )
            async with recount.watching():
                begin_s = time.monotonic()  # on a busy machine the ground takes its time
                while time.monotonic() - begin_s < plan.seconds:
                    await _round(churn, blows, min(plan.round_s, plan.seconds))
                    await rest.look()
                    await churn.delete_all()
                    await rest.look_empty()
                    figures.seconds = time.monotonic() - begin_s
                    print(figures.table(), flush=True)  # progress
            logs = [component.log for component in ground.components.values()]
        await ground.corner.clean()
        await client.delete(NAMESPACES, name)
    for log in logs:
        for text in _defects(log):
            figures.problem(f"{log.name}: {text}")
    return figures


async def _round(churn: Churn, blows: Blows, seconds: float) -> None:
    end_s = time.monotonic() + seconds

    def is_over() -> bool:
        return time.monotonic() >= end_s

    async with asyncio.TaskGroup() as group:
        group.create_task(churn.live(is_over))
        group.create_task(blows.deal(is_over))


def _defects(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines()
    # A line begins with what happened; the error itself is the end of its traceback.
    return sorted(
        {f"{line[:300]} … {line[300:][-600:]}" for line in lines if _DEFECTS.search(line)}
    )
