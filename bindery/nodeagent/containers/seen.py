"""Reads the state of a pod from the runtime, for the decisions of `nodecore.podsync`."""

from pathlib import Path
from typing import Final

from bindery.nodeagent.containers import labels
from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.errors import RuntimeCallError
from bindery.nodeagent.containers.runtime import Runtime
from bindery.nodecore.cgroups import conversions
from bindery.nodecore.podsync.facts import (
    RuntimeContainer,
    RuntimeLimits,
    RuntimePod,
    RuntimeSandbox,
    RuntimeState,
    RuntimeUser,
)

NANOSECONDS: Final = 1e9
_MOST_MESSAGE: Final = 4096
_MOST_LOG: Final = 2048
_LOG_LINES: Final = 80
_FALLBACK: Final = "FallbackToLogsOnError"

_STATES: Final = {
    cri.CONTAINER_CREATED: RuntimeState.CREATED,
    cri.CONTAINER_RUNNING: RuntimeState.RUNNING,
    cri.CONTAINER_EXITED: RuntimeState.EXITED,
}


async def read(runtime: Runtime, uid: str, runtime_name: str) -> RuntimePod:
    """Return the state of the pod `uid` in the runtime; raises RuntimeCallError."""
    sandboxes = []
    for listed in await runtime.sandboxes(uid):
        status = await _sandbox_status(runtime, listed.id)
        if status is not None:
            sandboxes.append(_sandbox(status))
    containers = []
    for found in await runtime.containers(uid):
        try:
            containers.append(_container(await runtime.container_status(found.id), runtime_name))
        except RuntimeCallError as error:
            if not error.is_not_found:
                raise
    sandboxes.sort(key=lambda one: (one.created_s, one.attempt), reverse=True)
    containers.sort(key=lambda one: (one.created_s, one.attempt), reverse=True)
    return RuntimePod(tuple(sandboxes), tuple(containers))


async def _sandbox_status(runtime: Runtime, sandbox_id: str) -> cri.PodSandboxStatus | None:
    try:
        return await runtime.sandbox_status(sandbox_id)
    except RuntimeCallError as error:
        if error.is_not_found:
            return None
        raise


def _sandbox(status: cri.PodSandboxStatus) -> RuntimeSandbox:
    network = status.network
    further = [one.ip for one in network.additional_ips]
    options = status.linux.namespaces.options
    return RuntimeSandbox(
        status.id,
        status.state == cri.SANDBOX_READY,
        status.metadata.attempt,
        status.created_at / NANOSECONDS,
        tuple(one for one in (network.ip, *further) if one),
        host_network=options.network == cri.NODE,
    )


def _container(status: cri.ContainerStatus, runtime_name: str) -> RuntimeContainer:
    notes = dict(status.annotations)
    attempt = notes.get(labels.RESTART_COUNT, "")
    return RuntimeContainer(
        id=f"{runtime_name}://{status.id}",
        name=status.labels.get(labels.CONTAINER, status.metadata.name),
        state=_STATES.get(status.state, RuntimeState.UNKNOWN),
        attempt=int(attempt) if attempt.isdigit() else status.metadata.attempt,
        created_s=status.created_at / NANOSECONDS,
        started_s=status.started_at / NANOSECONDS,
        finished_s=status.finished_at / NANOSECONDS,
        exit_code=status.exit_code,
        reason=status.reason,
        message=_message(status, notes),
        image=status.image.image,
        image_ref=status.image_ref,
        definition=notes.get(labels.HASH, ""),
        user=_user(status.user),
        limits=_limits(status.resources.linux),
    )


def _user(user: cri.ContainerUser) -> RuntimeUser | None:
    if not user.HasField("linux"):
        return None
    return RuntimeUser(user.linux.uid, user.linux.gid, tuple(user.linux.supplemental_groups))


def _limits(resources: cri.LinuxContainerResources) -> RuntimeLimits:
    period_us = resources.cpu_period
    return RuntimeLimits(
        conversions.milli_of_shares(resources.cpu_shares),
        conversions.milli_of_quota(resources.cpu_quota, period_us) if period_us > 0 else 0,
        max(0, resources.memory_limit_in_bytes),
    )


def own_id(container_id: str) -> str:
    """Return the runtime's own identifier, without the runtime's name."""
    return container_id.partition("://")[2]


def _message(status: cri.ContainerStatus, notes: dict[str, str]) -> str:
    """Return the container's termination message, or the runtime's message."""
    if status.state != cri.CONTAINER_EXITED:
        return ""
    path = notes.get(labels.MESSAGE_PATH, "")
    files = [one.host_path for one in status.mounts if path and one.container_path == path]
    text = "".join(_head(Path(file), _MOST_MESSAGE) for file in files)
    if not text and status.exit_code != 0 and notes.get(labels.MESSAGE_POLICY) == _FALLBACK:
        text = _log_end(Path(status.log_path))
    return text or status.message


def _head(file: Path, most: int) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(most).decode(errors="replace")
    except OSError:
        return ""


def _log_end(file: Path) -> str:
    """Return the last lines of a log, without the times and streams that CRI puts before them."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - 4 * _MOST_LOG))
            lines = opened.read().decode(errors="replace").splitlines(keepends=True)
    except OSError:
        return ""
    texts = [line.split(" ", 3)[3] for line in lines if line.count(" ") >= 3]
    return "".join(texts[-_LOG_LINES:])[-_MOST_LOG:]
