"""How long a round of the volume manager takes on a node with 10,000 volumes.

Run by `__main__`, or alone: `python -m benchmarks.nodevolumes`. A plugin that mounts nothing stands
in for mounts, so that only decisions and loops are measured, as time of the processor.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from benchmarks.nodedecisions import RUNS, Sample
from bindery.nodeagent.volumes.emptydir import EMPTY_DIR
from bindery.nodeagent.volumes.interface import Plugins, PodMount
from bindery.nodeagent.volumes.keeper import KeptPod, VolumeKeeper
from bindery.nodeagent.volumes.sources import MountingPod
from bindery.nodeagent.volumes.volumenode import VolumeNode
from bindery.nodecore.volumes.reconstruction import FoundVolume
from bindery.nodecore.volumes.specs import VolumeSpec

PODS: Final = 2_000
VOLUMES_EACH: Final = 5
IDLE_MS: Final = 1.0
CHANGED_MS: Final = 20.0
ALL_MS: Final = 10_000.0
_CALLS: Final = 3


class Nothing:
    """A plugin that mounts nothing."""

    def path(self, mount: PodMount) -> Path:
        """Return a path."""
        return Path(mount.pod.uid) / mount.spec.name

    async def set_up(self, mount: PodMount) -> None:
        """Do nothing."""

    async def tear_down(self, found: FoundVolume) -> None:
        """Do nothing."""

    def construct(self, found: FoundVolume) -> VolumeSpec:
        """Return the volume."""
        return VolumeSpec(found.name, EMPTY_DIR)


class NoMounts:
    """A machine without mounts, and an API without objects: nothing asks them."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def samples() -> Iterator[Sample]:
    """Yield the samples."""
    yield from asyncio.run(_measured())


async def _measured() -> list[Sample]:
    keeper = _keeper()
    pods = [_pod(number) for number in range(PODS)]
    keeper.set_pods(pods, sources_ready=True)
    keeper.set_attached({})
    start = time.process_time()
    while not keeper.is_idle:
        keeper.round()
        await asyncio.sleep(0)
    mounted_ms = (time.process_time() - start) * 1000
    count = PODS * VOLUMES_EACH
    if len(keeper.manager.actual.mounted_volumes()) != count:
        raise RuntimeError("a volume is not mounted")

    def changed() -> None:
        keeper.manager.populator.reprocess_pod(pods[0].pod.uid)
        keeper.set_reported_in_use(())
        keeper.round()

    return [
        Sample(f"volumes: an idle round, {count} volumes", _median_ms(keeper.round), IDLE_MS),
        Sample(
            f"volumes: a round after a change of one pod, {count} volumes",
            _median_ms(changed),
            CHANGED_MS,
        ),
        Sample(f"volumes: from nothing to {count} volumes", mounted_ms, ALL_MS),
    ]


def _keeper() -> VolumeKeeper:
    nothing: Any = NoMounts()
    node = VolumeNode(
        root=Path("/nonexistent"),
        name="node",
        plugins=Plugins({EMPTY_DIR: Nothing()}, {}, {}),
        objects=nothing,
        mounter=nothing,
        clock=time.monotonic,
        record=lambda *_: None,
    )
    return VolumeKeeper(node)


def _pod(number: int) -> KeptPod:
    names = [f"volume-{each}" for each in range(VOLUMES_EACH)]
    manifest = {
        "metadata": {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-{number}"},
        "spec": {
            "volumes": [{"name": name, "emptyDir": {}} for name in names],
            "containers": [{"volumeMounts": [{"name": name} for name in names]}],
        },
    }
    return KeptPod(msgspec.convert(manifest, MountingPod))


def _median_ms(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        for _ in range(_CALLS):
            call()
        times.append((time.process_time() - start) / _CALLS)
    return median(times) * 1000


def main() -> None:
    """Print the samples."""
    for sample in samples():
        verdict = "" if sample.milliseconds <= sample.bar_ms else "  MISSED"
        print(f"{sample.name}: {sample.milliseconds:.3f} ms, below {sample.bar_ms:g}{verdict}")


if __name__ == "__main__":
    main()
