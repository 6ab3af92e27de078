"""The container runtime, by CRI (`k8s.io/cri-api`, runtime v1); every call has a deadline.

Source of the deadlines: the kubelet's `runtimeRequestTimeout`, 2 minutes, and its exceptions.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self, TypeVar

import grpc
from google.protobuf.message import Message

from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.errors import EndpointError, RuntimeCallError
from bindery.nodeagent.sockets.services import CallError, Peer

CALL_S: Final = 120.0
SANDBOX_S: Final = 240.0
"""A sandbox needs the network's plugins too."""
PULL_S: Final = 3600.0
_STATUS_S: Final = 10.0
_UID_LABEL: Final = "io.kubernetes.pod.uid"
_NOT_UNIX: Final = "only Unix sockets are supported, such as unix:///run/containerd/containerd.sock"

M = TypeVar("M", bound=Message)


def socket_of(endpoint: str) -> Path:
    """Return the socket of `--container-runtime-endpoint`.

    Raises:
        EndpointError: it is not the address of a Unix socket.
    """
    scheme, is_url, path = endpoint.partition("://")
    path = path if is_url else endpoint
    if (is_url and scheme != "unix") or not path.startswith("/"):
        raise EndpointError(f"{endpoint!r}: {_NOT_UNIX}")
    return Path(path)


class Runtime:
    """A connection to a runtime; use it as a context manager."""

    def __init__(self, endpoint: str) -> None:
        socket = socket_of(endpoint)
        services = cri.DESCRIPTOR.services_by_name
        self._containers = Peer(socket, services["RuntimeService"])
        self._images = Peer(socket, services["ImageService"])
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for peer in (self._containers, self._images):
            await self._stack.enter_async_context(peer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def version(self) -> cri.VersionResponse:
        """Return the name and version of the runtime."""
        return await self._call("Version", cri.VersionRequest(), cri.VersionResponse, _STATUS_S)

    async def status(self) -> cri.RuntimeStatus:
        """Return the conditions of the runtime, such as that its network is ready."""
        answer = await self._call("Status", cri.StatusRequest(), cri.StatusResponse, _STATUS_S)
        return answer.status

    async def driver(self) -> int:
        """Return the cgroup driver, a value of `cri.CgroupDriver`; cgroupfs from old runtimes."""
        try:
            answer = await self._call(
                "RuntimeConfig", cri.RuntimeConfigRequest(), cri.RuntimeConfigResponse, _STATUS_S
            )
        except RuntimeCallError as error:
            if error.code is grpc.StatusCode.UNIMPLEMENTED:
                return cri.CGROUPFS
            raise
        return answer.linux.cgroup_driver if answer.HasField("linux") else cri.CGROUPFS

    async def sandboxes(self, uid: str | None = None) -> Sequence[cri.PodSandbox]:
        """Return all sandboxes, or those of the pod `uid`."""
        request = cri.ListPodSandboxRequest()
        if uid is not None:
            request.filter.label_selector[_UID_LABEL] = uid
        answer = await self._call("ListPodSandbox", request, cri.ListPodSandboxResponse)
        return list(answer.items)

    async def containers(self, uid: str | None = None) -> Sequence[cri.Container]:
        """Return all containers, or those of the pod `uid`."""
        request = cri.ListContainersRequest()
        if uid is not None:
            request.filter.label_selector[_UID_LABEL] = uid
        answer = await self._call("ListContainers", request, cri.ListContainersResponse)
        return list(answer.containers)

    async def sandbox_status(self, sandbox_id: str) -> cri.PodSandboxStatus:
        """Return the status of a sandbox."""
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        return (await self._call("PodSandboxStatus", request, cri.PodSandboxStatusResponse)).status

    async def container_status(self, container_id: str) -> cri.ContainerStatus:
        """Return the status of a container."""
        request = cri.ContainerStatusRequest(container_id=container_id)
        return (await self._call("ContainerStatus", request, cri.ContainerStatusResponse)).status

    async def run_sandbox(self, config: cri.PodSandboxConfig, handler: str = "") -> str:
        """Make and start a sandbox; return its id."""
        request = cri.RunPodSandboxRequest(config=config, runtime_handler=handler)
        answer = await self._call("RunPodSandbox", request, cri.RunPodSandboxResponse, SANDBOX_S)
        return answer.pod_sandbox_id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Kill what runs in a sandbox and free its network; a missing one is no error."""
        request = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        await self._end("StopPodSandbox", request, cri.StopPodSandboxResponse)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Remove a sandbox with its containers; a missing one is no error."""
        request = cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        await self._end("RemovePodSandbox", request, cri.RemovePodSandboxResponse)

    async def create_container(
        self, sandbox_id: str, config: cri.ContainerConfig, sandbox: cri.PodSandboxConfig
    ) -> str:
        """Create a container in a sandbox; return its id."""
        request = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox
        )
        answer = await self._call("CreateContainer", request, cri.CreateContainerResponse)
        return answer.container_id

    async def start_container(self, container_id: str) -> None:
        """Start a created container."""
        request = cri.StartContainerRequest(container_id=container_id)
        await self._call("StartContainer", request, cri.StartContainerResponse)

    async def stop_container(self, container_id: str, grace_s: int) -> None:
        """Send the stop signal, and SIGKILL after `grace_s`; a missing container is no error."""
        request = cri.StopContainerRequest(container_id=container_id, timeout=grace_s)
        await self._end("StopContainer", request, cri.StopContainerResponse, CALL_S + grace_s)

    async def remove_container(self, container_id: str) -> None:
        """Remove a container; a missing one is no error."""
        request = cri.RemoveContainerRequest(container_id=container_id)
        await self._end("RemoveContainer", request, cri.RemoveContainerResponse)

    async def reopen_log(self, container_id: str) -> None:
        """Begin a new log of a running container, after the old one was renamed."""
        request = cri.ReopenContainerLogRequest(container_id=container_id)
        await self._call("ReopenContainerLog", request, cri.ReopenContainerLogResponse)

    async def execute(
        self, container_id: str, command: Sequence[str], timeout_s: float
    ) -> cri.ExecSyncResponse:
        """Run a command in a container; return its exit code and output.

        Raises:
            RuntimeCallError: with DEADLINE_EXCEEDED if it has not ended in `timeout_s`.
        """
        request = cri.ExecSyncRequest(
            container_id=container_id, cmd=command, timeout=max(1, int(timeout_s))
        )
        # The runtime's own limit comes first, so that it ends the command.
        return await self._call("ExecSync", request, cri.ExecSyncResponse, timeout_s + 5)

    async def exec_url(self, request: cri.ExecRequest) -> str:
        """Return where the streams of a command are served."""
        return (await self._call("Exec", request, cri.ExecResponse)).url

    async def attach_url(self, request: cri.AttachRequest) -> str:
        """Return where the streams of a container's process are served."""
        return (await self._call("Attach", request, cri.AttachResponse)).url

    async def port_forward_url(self, request: cri.PortForwardRequest) -> str:
        """Return where connections to ports of a sandbox are served."""
        return (await self._call("PortForward", request, cri.PortForwardResponse)).url

    async def container_uses(self) -> Sequence[cri.ContainerStats]:
        """Return what the running containers use."""
        request = cri.ListContainerStatsRequest()
        answer = await self._call("ListContainerStats", request, cri.ListContainerStatsResponse)
        return list(answer.stats)

    async def pod_uses(self) -> Sequence[cri.PodSandboxStats]:
        """Return what the ready sandboxes use, each with all its containers."""
        request = cri.ListPodSandboxStatsRequest()
        answer = await self._call("ListPodSandboxStats", request, cri.ListPodSandboxStatsResponse)
        return list(answer.stats)

    async def image(self, name: str, handler: str = "") -> cri.Image | None:
        """Return an image that is on the node, None if it is not."""
        spec = cri.ImageSpec(image=name, runtime_handler=handler)
        answer = await self._ask_images(
            "ImageStatus", cri.ImageStatusRequest(image=spec), cri.ImageStatusResponse, CALL_S
        )
        return answer.image if answer.HasField("image") else None

    async def pull(
        self, spec: cri.ImageSpec, auth: cri.AuthConfig | None, sandbox: cri.PodSandboxConfig
    ) -> str:
        """Pull an image; return its reference."""
        request = cri.PullImageRequest(image=spec, auth=auth, sandbox_config=sandbox)
        answer = await self._ask_images("PullImage", request, cri.PullImageResponse, PULL_S)
        return answer.image_ref

    async def _end(
        self, method: str, request: Message, answer: type[Message], timeout_s: float = CALL_S
    ) -> None:
        try:
            await self._call(method, request, answer, timeout_s)
        except RuntimeCallError as error:
            if not error.is_not_found:
                raise

    async def _call(
        self, method: str, request: Message, answer: type[M], timeout_s: float = CALL_S
    ) -> M:
        return await _answered(self._containers, method, request, answer, timeout_s)

    async def _ask_images(
        self, method: str, request: Message, answer: type[M], timeout_s: float
    ) -> M:
        return await _answered(self._images, method, request, answer, timeout_s)


async def _answered(
    peer: Peer, method: str, request: Message, answer: type[M], timeout_s: float
) -> M:
    try:
        return await peer.call(method, request, answer, timeout_s)
    except CallError as error:
        details = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
        code = error.code() if isinstance(error, grpc.aio.AioRpcError) else grpc.StatusCode.UNKNOWN
        raise RuntimeCallError(method, code, details or "") from error
