"""A fake container runtime, made for tests: it serves CRI on a socket and runs nothing.

Containers run until a test ends them. Each call can be made to fail, or to hang until it is let go.
"""

import asyncio
import itertools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc

from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.seen import NANOSECONDS
from bindery.nodeagent.sockets.services import Refusal, serve

ADDRESS = "10.1.2.3"


@dataclass
class FakeSandbox:
    id: str
    config: cri.PodSandboxConfig
    handler: str
    created: int
    state: cri.PodSandboxState = cri.SANDBOX_READY


@dataclass
class FakeContainer:
    id: str
    sandbox: str
    config: cri.ContainerConfig
    created: int
    state: cri.ContainerState = cri.CONTAINER_CREATED
    started: int = 0
    finished: int = 0
    exit_code: int = 0
    reason: str = ""
    grace_s: int | None = None
    """The grace period with which it was stopped."""


@dataclass
class FakeRuntime:
    """The runtime; `outcomes`: name of a container -> exit codes with which it ends at once."""

    socket: Path
    images: set[str] = field(default_factory=lambda: {"app:1"})
    outcomes: dict[str, list[int]] = field(default_factory=dict)
    sandboxes: dict[str, FakeSandbox] = field(default_factory=dict)
    containers: dict[str, FakeContainer] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    executed: list[tuple[str, Sequence[str]]] = field(default_factory=list)
    execute: Callable[[str, Sequence[str]], int] = lambda _name, _command: 0
    pulled_with: list[str] = field(default_factory=list)
    clock: Callable[[], float] = time.time
    changed: Callable[[], None] = lambda: None
    """Called when a container has ended, as a kubelet finds out by listing containers."""
    _failing: dict[str, Refusal] = field(default_factory=dict)
    _hanging: dict[str, asyncio.Event] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        service = cri.DESCRIPTOR.services_by_name
        self._server = serve(
            self.socket,
            (service["RuntimeService"], self._methods(_RUNTIME)),
            (service["ImageService"], self._methods(_IMAGES)),
        )

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for event in self._hanging.values():
            event.set()
        await self._server.stop(None)

    def fail(self, method: str, text: str, code: grpc.StatusCode = grpc.StatusCode.UNKNOWN) -> None:
        """Let all calls of `method` fail until `mend`."""
        self._failing[method] = Refusal(text, code)

    def hang(self, method: str) -> None:
        """Let all calls of `method` wait until `mend`."""
        self._hanging[method] = asyncio.Event()

    def mend(self, method: str) -> None:
        """Let calls of `method` succeed again, also calls that wait."""
        self._failing.pop(method, None)
        if method in self._hanging:
            self._hanging.pop(method).set()

    def end(self, name: str, exit_code: int, reason: str = "") -> None:
        """End the running container called `name`."""
        (container,) = [one for one in self.named(name) if one.state == cri.CONTAINER_RUNNING]
        self._finish(container, exit_code, reason)

    def named(self, name: str) -> list[FakeContainer]:
        """Return all containers called `name`, the oldest first."""
        return [one for one in self.containers.values() if one.config.metadata.name == name]

    def running(self) -> list[str]:
        """Return the names of the running containers."""
        return [
            one.config.metadata.name
            for one in self.containers.values()
            if one.state == cri.CONTAINER_RUNNING
        ]

    def _methods(self, names: Sequence[str]) -> dict[str, Callable[[Any], Any]]:
        return {name: self._method(name) for name in names}

    def _method(self, name: str) -> Callable[[Any], Any]:
        async def answer(request: Any) -> Any:
            self.calls.append(name)
            if name in self._hanging:
                await self._hanging[name].wait()
            if name in self._failing:
                raise self._failing[name]
            return getattr(self, _SNAKE.sub("_", f"_{name}").lower())(request)

        return answer

    def _finish(self, container: FakeContainer, exit_code: int, reason: str = "") -> None:
        container.state = cri.CONTAINER_EXITED
        container.exit_code, container.finished = exit_code, self._now()
        container.reason = reason or ("Error" if exit_code else "Completed")
        self.changed()

    def _now(self) -> int:
        return int(self.clock() * NANOSECONDS)

    def _version(self, _: Any) -> Any:
        return cri.VersionResponse(runtime_name="fake", runtime_version="1", version="0.1.0")

    def _status(self, _: Any) -> Any:
        conditions = [
            cri.RuntimeCondition(type=kind, status=True)
            for kind in ("RuntimeReady", "NetworkReady")
        ]
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=conditions))

    def _list_pod_sandbox(self, request: Any) -> Any:
        wanted = dict(request.filter.label_selector)
        return cri.ListPodSandboxResponse(
            items=[
                cri.PodSandbox(
                    id=one.id,
                    metadata=one.config.metadata,
                    state=one.state,
                    labels=one.config.labels,
                    created_at=one.created,
                )
                for one in self.sandboxes.values()
                if wanted.items() <= dict(one.config.labels).items()
            ]
        )

    def _list_containers(self, request: Any) -> Any:
        wanted = dict(request.filter.label_selector)
        return cri.ListContainersResponse(
            containers=[
                cri.Container(
                    id=one.id,
                    pod_sandbox_id=one.sandbox,
                    metadata=one.config.metadata,
                    state=one.state,
                    labels=one.config.labels,
                    annotations=one.config.annotations,
                )
                for one in self.containers.values()
                if wanted.items() <= dict(one.config.labels).items()
            ]
        )

    def _pod_sandbox_status(self, request: Any) -> Any:
        one = _found(self.sandboxes, request.pod_sandbox_id)
        options = one.config.linux.security_context.namespace_options
        is_host = options.network == cri.NODE
        status = cri.PodSandboxStatus(
            id=one.id,
            metadata=one.config.metadata,
            state=one.state,
            created_at=one.created,
            network=cri.PodSandboxNetworkStatus(ip="" if is_host else ADDRESS),
            labels=one.config.labels,
        )
        status.linux.namespaces.options.CopyFrom(options)
        return cri.PodSandboxStatusResponse(status=status)

    def _container_status(self, request: Any) -> Any:
        one = _found(self.containers, request.container_id)
        return cri.ContainerStatusResponse(
            status=cri.ContainerStatus(
                id=one.id,
                metadata=one.config.metadata,
                state=one.state,
                created_at=one.created,
                started_at=one.started,
                finished_at=one.finished,
                exit_code=one.exit_code,
                reason=one.reason,
                image=one.config.image,
                image_ref=f"{one.config.image.image}@sha256:1",
                labels=one.config.labels,
                annotations=one.config.annotations,
                mounts=one.config.mounts,
                resources=cri.ContainerResources(linux=one.config.linux.resources),
                user=cri.ContainerUser(linux=_user(one.config.linux.security_context)),
            )
        )

    def _run_pod_sandbox(self, request: Any) -> Any:
        key = f"sandbox-{next(self._numbers)}"
        self.sandboxes[key] = FakeSandbox(key, request.config, request.runtime_handler, self._now())
        return cri.RunPodSandboxResponse(pod_sandbox_id=key)

    def _stop_pod_sandbox(self, request: Any) -> Any:
        one = _found(self.sandboxes, request.pod_sandbox_id)
        one.state = cri.SANDBOX_NOTREADY
        for container in self.containers.values():
            if container.sandbox == one.id and container.state == cri.CONTAINER_RUNNING:
                self._finish(container, 137)
        return cri.StopPodSandboxResponse()

    def _remove_pod_sandbox(self, request: Any) -> Any:
        self.sandboxes.pop(request.pod_sandbox_id, None)
        self.containers = {
            key: one
            for key, one in self.containers.items()
            if one.sandbox != request.pod_sandbox_id
        }
        return cri.RemovePodSandboxResponse()

    def _create_container(self, request: Any) -> Any:
        key = f"container-{next(self._numbers)}"
        config = request.config
        self.containers[key] = FakeContainer(key, request.pod_sandbox_id, config, self._now())
        return cri.CreateContainerResponse(container_id=key)

    def _start_container(self, request: Any) -> Any:
        one = _found(self.containers, request.container_id)
        one.state, one.started = cri.CONTAINER_RUNNING, self._now()
        codes = self.outcomes.get(one.config.metadata.name)
        if codes:
            self._finish(one, codes.pop(0))
        return cri.StartContainerResponse()

    def _stop_container(self, request: Any) -> Any:
        one = _found(self.containers, request.container_id)
        one.grace_s = request.timeout
        if one.state == cri.CONTAINER_RUNNING:
            self._finish(one, 143)
        return cri.StopContainerResponse()

    def _reopen_container_log(self, request: Any) -> Any:
        one = _found(self.containers, request.container_id)
        place = Path(self.sandboxes[one.sandbox].config.log_directory) / one.config.log_path
        place.write_bytes(b"")
        return cri.ReopenContainerLogResponse()

    def _remove_container(self, request: Any) -> Any:
        self.containers.pop(request.container_id, None)
        return cri.RemoveContainerResponse()

    def _exec_sync(self, request: Any) -> Any:
        one = _found(self.containers, request.container_id)
        self.executed.append((one.config.metadata.name, list(request.cmd)))
        code = self.execute(one.config.metadata.name, list(request.cmd))
        return cri.ExecSyncResponse(exit_code=code, stderr=b"failed" if code else b"")

    def _image_status(self, request: Any) -> Any:
        name = request.image.image
        if name not in self.images:
            return cri.ImageStatusResponse()
        return cri.ImageStatusResponse(image=cri.Image(id=name, repo_tags=[name]))

    def _pull_image(self, request: Any) -> Any:
        self.images.add(request.image.image)
        self.pulled_with.append(request.auth.username)
        return cri.PullImageResponse(image_ref=request.image.image)


_SNAKE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_RUNTIME = (
    "Version", "Status", "ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus",
    "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer",
    "StopContainer", "RemoveContainer", "ExecSync", "ReopenContainerLog",
)  # fmt: skip
_IMAGES = ("ImageStatus", "PullImage")


def _user(context: cri.LinuxContainerSecurityContext) -> cri.LinuxContainerUser:
    return cri.LinuxContainerUser(
        uid=context.run_as_user.value,
        gid=context.run_as_group.value,
        supplemental_groups=context.supplemental_groups,
    )


def _found(items: Any, key: str) -> Any:
    if key not in items:
        raise Refusal(f"{key} not found", grpc.StatusCode.NOT_FOUND)
    return items[key]
