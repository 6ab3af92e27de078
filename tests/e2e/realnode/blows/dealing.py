"""Draws blows and deals them, one after the other, to the agent of a node.

After each blow the agent starts again, and a pod has to go on, before the next one is prepared.
"""

import asyncio
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Final

from devcluster import checkout
from devcluster.realnode.node import RealNode
from tests.e2e.realnode.blows import filewatch
from tests.e2e.realnode.blows.load import Load
from tests.e2e.realnode.blows.otherside import BLOWS, DEALT, Blow

CALLS: Final = {
    "cri": (
        "RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox",
        "RemovePodSandbox", "ExecSync", "ImageStatus", "ListPodSandbox", "ContainerStatus",
    ),
    "csi": (
        "NodeGetInfo", "NodeGetCapabilities", "NodeStageVolume", "NodePublishVolume",
        "NodeUnpublishVolume", "NodeUnstageVolume",
    ),
    "device": ("GetPreferredAllocation", "Allocate", "PreStartContainer"),
    "dra": ("NodePrepareResources", "NodeUnprepareResources"),
}  # fmt: skip
MOMENTS: Final = {
    "arrived": "before it is carried out",
    "midway": "while it is carried out",
    "done": "before the answer",
    "answered": "after the answer",
}
_MIDWAY: Final = "cri"
"""Only the runtime is struck midway: the others carry calls out in no time."""
FILES: Final = {
    "a checkpoint": r"\.(?!vol_data|\.).*",
    "data of a volume": r"\.vol_data\.json",
    "files of a volume": r"\.\.data_tmp",
}
"""Kinds of files, with the pattern of their temporary names."""
_FILE: Final = "file "
_TIMES_EACH_FILE: Final = 7
_AT_START: Final = "csi NodeGetInfo"
"""This call comes only when the agent has just started: its blow follows another one at once."""
_TOGETHER: Final = 4
"""How many blows wait for their calls at one time; the first call that comes is struck."""
_WAIT_S: Final = 60.0
"""How long blows wait for their calls; then others do."""
_SEEN_S: Final = 1.0
"""What the killed agent has written is seen after this time."""
_HANGS_S: Final = 240.0


class Dealing:
    """Deals blows to the agent of a node; `total`: the blows that are wanted in all.

    Attributes:
        dealt: call or kind of file, and moment -> how often.
    """

    def __init__(self, node: RealNode, random: Random, total: int) -> None:
        self._node, self._random, self._total = node, random, total
        self._deck: deque[Blow] = deque()
        self.dealt: Counter[tuple[str, str]] = Counter()

    async def deal(self, count: int, load: Load) -> None:
        """Deal so many blows while `load` comes and goes.

        Raises:
            AssertionError: the agent does not start again, or no pod goes on.
        """
        until, is_down = self.dealt.total() + count, False
        while self.dealt.total() < until:
            self._shuffle()
            first = self._deck[0]
            if first.call != _AT_START or not is_down:
                await self._progress(load)
            if first.call.startswith(_FILE):
                hand = [first]
                is_down = await self._by_file(first)
            else:
                hand = self._hand(first, at_start=is_down)
                is_down = await self._by_call(hand)
            if not is_down:
                print(f"none came: {', '.join(f'{one.call} {one.moment}' for one in hand)}")
                for one in hand:
                    self._deck.remove(one)
                    self._deck.append(one)

    def _shuffle(self) -> None:
        """Add every blow once, in some order, before there are too few."""
        if len(self._deck) > _TOGETHER:
            return
        every = [
            Blow(f"{side} {method}", moment, round(self._random.uniform(0.002, 0.05), 3))
            for side, methods in CALLS.items()
            for method in methods
            for moment in MOMENTS
            if moment != "midway" or side == _MIDWAY
        ]
        every += [Blow(f"{_FILE}{kind}", "created") for kind in FILES] * _TIMES_EACH_FILE
        self._random.shuffle(every)
        self._deck.extend(every)

    def _hand(self, first: Blow, *, at_start: bool) -> list[Blow]:
        if first.call == _AT_START and at_start:
            return [first]
        others = [one for one in self._deck if not one.call.startswith((_FILE, _AT_START))]
        return others[:_TOGETHER]

    async def _progress(self, load: Load) -> None:
        """Wait until the agent runs, and a pod has gone on since then."""
        await asyncio.sleep(_SEEN_S)
        await _until(lambda: agent(self._node) is not None, "the agent does not start", load)
        before = load.advances
        await _until(lambda: load.advances > before, "no pod goes on", load)

    async def _by_call(self, hand: Sequence[Blow]) -> bool:
        file, record = self._node.shared / BLOWS, self._node.shared / DEALT
        before = len(_lines(record))
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps([asdict(one) for one in hand]))
        fresh.replace(file)
        deadline_s = time.monotonic() + _WAIT_S
        while len(lines := _lines(record)) == before:
            if time.monotonic() > deadline_s:
                file.unlink(missing_ok=True)
                return False
            await asyncio.sleep(0.05)
        call, moment, pid = lines[-1].rsplit(" ", 2)
        if pid == "None":
            return False  # the agent was dead already
        self._deck.remove(next(one for one in hand if (one.call, one.moment) == (call, moment)))
        self._note(call, MOMENTS[moment])
        return True

    async def _by_file(self, blow: Blow) -> bool:
        pattern = FILES[blow.call.removeprefix(_FILE)]
        command = [sys.executable, "-P", "-m", filewatch.__name__, pattern, str(_WAIT_S)]
        path = f"PYTHONPATH={checkout.ROOT}"
        run = self._node.run
        found = await asyncio.to_thread(run, "env", path, *command, timeout_s=3 * _WAIT_S)
        if not found:
            return False
        self._deck.remove(blow)
        is_between = found.split()[-1] == "True"
        self._note(blow.call, f"{'before' if is_between else 'after'} it is renamed")
        return True

    def _note(self, call: str, moment: str) -> None:
        self.dealt[call, moment] += 1
        now = time.strftime("%H:%M:%S")
        print(f"{now} blow {self.dealt.total()} of {self._total}: {call}, {moment}", flush=True)


def agent(node: RealNode) -> int | None:
    """Return the process ID of the agent of a node, None while there is none."""
    for pid in node.pids(Path(sys.executable).resolve().name):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if filewatch.COMMAND in command:
            return pid
    return None


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def _until(holds: Callable[[], bool], otherwise: str, load: Load) -> None:
    deadline_s = time.monotonic() + _HANGS_S
    while not holds():
        assert time.monotonic() < deadline_s, f"{otherwise}: {load.shown()}"
        await asyncio.sleep(0.2)
