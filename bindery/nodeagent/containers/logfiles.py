"""Keeps the logs of containers small: the rotation of a kubelet.

A log that has reached its size is renamed, and the runtime begins a new one. Older ones are
compressed, and the oldest removed. The files alone are the state, so that the next round goes on
after a kill at any step. Source: `pkg/kubelet/logs/container_log_manager.go`, Kubernetes 1.36.
"""

import asyncio
import glob
import gzip
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from bindery.nodeagent.containers import labels
from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.errors import RuntimeCallError
from bindery.nodeagent.containers.runtime import Runtime

LOOK_S: Final = 10.0
"""How often the sizes of logs are looked at."""
_POD: Final = (labels.POD_NAMESPACE, labels.POD_NAME, labels.POD_UID)
_COMPRESSED: Final = ".gz"
_UNFINISHED: Final = ".tmp"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class LogLimits:
    """What the logs of one container may take; the defaults are a kubelet's.

    Attributes:
        size_bytes: a log of this size is renamed.
        files: how many there are at most, at least 2: the one that is written, and renamed ones.
    """

    size_bytes: int = 10 * 1024**2
    files: int = 5


def directory_of(logs: Path, namespace: str, name: str, uid: str) -> Path:
    """Return the directory with the logs of a pod, in the directory `logs`."""
    return logs / f"{namespace}_{name}_{uid}"


def log_of(logs: Path, container: cri.Container) -> Path | None:
    """Return where the log of a container is; None if the agent has not made the container."""
    known, attempt = container.labels, container.annotations.get(labels.RESTART_COUNT)
    try:
        pod = directory_of(logs, *(known[key] for key in _POD))
        return pod / known[labels.CONTAINER] / f"{attempt}.log" if attempt else None
    except KeyError:
        return None


def remove_others(logs: Path, known: Collection[str]) -> None:
    """Remove the logs of pods whose UIDs are not among `known`; raises OSError."""
    for each in logs.glob("*_*_*"):
        if each.name.rpartition("_")[2] not in known:
            shutil.rmtree(each)


def remove(log_file: Path) -> None:
    """Remove a log with its renamed ones, as far as they are there."""
    for each in (*_renamed(log_file), log_file):
        each.unlink(missing_ok=True)


class LogRotation:
    """The rotation of all logs in the directory `logs`. `clock`: seconds since 1970."""

    def __init__(
        self, runtime: Runtime, logs: Path, limits: LogLimits, clock: Callable[[], float]
    ) -> None:
        self._runtime, self._logs, self._limits, self._clock = runtime, logs, limits, clock

    async def run(self) -> None:
        """Look at the logs every `LOOK_S` seconds; does not return."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Rotate the logs that are large; one that cannot be is left for the next time."""
        try:
            found = await self._runtime.containers()
        except RuntimeCallError:
            return  # the workers report it
        for each in found:
            path = log_of(self._logs, each)
            if path is None or each.state != cri.CONTAINER_RUNNING:
                continue
            try:
                await self._keep_small(each.id, path)
            except (OSError, RuntimeCallError) as error:
                log.warning("a log is not rotated", log=str(path), error=str(error))

    async def _keep_small(self, container_id: str, path: Path) -> None:
        size = _size(path)
        if size is None:  # an agent was killed before the runtime began a new one
            await self._runtime.reopen_log(container_id)
        elif size >= self._limits.size_bytes:
            await asyncio.to_thread(_make_room, path, self._limits.files)
            renamed = _rename(path, self._clock())
            try:
                await self._runtime.reopen_log(container_id)
            except RuntimeCallError:
                _undo_rename(path, renamed)
                raise


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _rename(path: Path, now_s: float) -> Path:
    stamp = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%d-%H%M%S")
    return path.rename(path.with_name(f"{path.name}.{stamp}"))


def _undo_rename(path: Path, renamed: Path) -> None:
    if not path.exists():  # else the runtime has begun a new one, although its call has failed
        renamed.rename(path)


def _make_room(path: Path, files: int) -> None:
    """Leave at most `files` - 2 renamed logs, all compressed: the log itself becomes one more."""
    for each in _renamed(path):
        is_left_over = each.suffix == _UNFINISHED or _compressed(each).exists()
        if is_left_over and each.suffix != _COMPRESSED:
            each.unlink()
    found = _renamed(path)
    for each in found[: max(0, len(found) - (files - 2))]:
        each.unlink()
    for each in _renamed(path):
        if each.suffix != _COMPRESSED:
            _compress(each)


def _compress(path: Path) -> None:
    unfinished = path.with_name(path.name + _UNFINISHED)
    with path.open("rb") as plain, gzip.open(unfinished, "wb") as packed:
        shutil.copyfileobj(plain, packed)
    unfinished.rename(_compressed(path))
    path.unlink()


def _compressed(path: Path) -> Path:
    return path.with_name(path.name + _COMPRESSED)


def _renamed(path: Path) -> list[Path]:
    """Return the renamed logs of the log at `path`, the oldest first."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.*"))
