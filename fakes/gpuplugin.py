"""`python -m fakes.gpuplugin`: a fake of NVIDIA's device plugin, for a real kubelet.

It registers with the kubelet as the plugin does (device plugin API v1beta1 of Kubernetes 1.36), and
its containers see NVIDIA_VISIBLE_DEVICES. The GPUs are invented: there is no hardware, and nothing
isolates anybody from them.
"""

import argparse
import asyncio
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

RESOURCE: Final = "nvidia.com/gpu"
_VERSION: Final = "v1beta1"
_KUBELET: Final = "kubelet.sock"
_SOCKET: Final = "fake-gpus.sock"
_POLL_S: Final = 0.5
_FIELD = descriptor_pb2.FieldDescriptorProto
_MESSAGES: Final[Mapping[str, Sequence[tuple[str, int, str, bool]]]] = {
    "Empty": (),
    "DevicePluginOptions": (),
    "RegisterRequest": (
        ("version", 1, "string", False),
        ("endpoint", 2, "string", False),
        ("resource_name", 3, "string", False),
    ),
    "Device": (("ID", 1, "string", False), ("health", 2, "string", False)),
    "ListAndWatchResponse": (("devices", 1, "Device", True),),
    "ContainerAllocateRequest": (("devices_ids", 1, "string", True),),
    "AllocateRequest": (("container_requests", 1, "ContainerAllocateRequest", True),),
    # In the encoding, a map is a list of messages with a key and a value.
    "Entry": (("key", 1, "string", False), ("value", 2, "string", False)),
    "ContainerAllocateResponse": (("envs", 1, "Entry", True),),
    "AllocateResponse": (("container_responses", 1, "ContainerAllocateResponse", True),),
}
"""Messages of the API, with the fields that are used: name, number, type, whether it repeats."""


def devices(node: str, count: int) -> list[str]:
    """Return the identifiers of the GPUs of a node, the same each time."""
    return [f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{i}')}" for i in range(count)]


class GpuPlugin:
    """The plugin of one node."""

    def __init__(self, directory: Path, identifiers: Sequence[str]) -> None:
        """Prepare; `directory` is the one with the socket of the kubelet."""
        self._directory, self._identifiers = directory, identifiers
        self._messages = _classes()

    async def run(self) -> None:
        """Serve; register again whenever the kubelet has made its socket anew."""
        while True:
            await self._poll(lambda: self._made() is not None)
            made = self._made()
            server = self._server()
            await server.start()
            try:
                await self._register()
                await self._poll(lambda: self._made() != made)  # noqa: B023  # awaited at once
            except grpc.RpcError as error:
                print(f"not registered: {error}", file=sys.stderr)
                await asyncio.sleep(_POLL_S)
            finally:
                await server.stop(None)

    def _made(self) -> tuple[int, int] | None:
        """Return what tells one socket of the kubelet from the next; None: there is none."""
        try:
            found = (self._directory / _KUBELET).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_ctime_ns

    async def _poll(self, is_so: Callable[[], bool]) -> None:
        while not is_so():  # noqa: ASYNC110  # about a file
            await asyncio.sleep(_POLL_S)

    def _server(self) -> grpc.aio.Server:
        (self._directory / _SOCKET).unlink(missing_ok=True)
        server = grpc.aio.server()
        methods = {
            "GetDevicePluginOptions": self._unary(self._options, "Empty"),
            "Allocate": self._unary(self._allocate, "AllocateRequest"),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._list, self._messages["Empty"].FromString, _encoded
            ),
        }
        service = f"{_VERSION}.DevicePlugin"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        server.add_insecure_port(f"unix:{self._directory / _SOCKET}")
        return server

    def _unary(self, method: Any, request: str) -> Any:
        decode = self._messages[request].FromString
        return grpc.unary_unary_rpc_method_handler(method, decode, _encoded)

    async def _options(self, _request: Any, _context: Any) -> Any:
        return self._messages["DevicePluginOptions"]()

    async def _list(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        listed = [self._messages["Device"](ID=each, health="Healthy") for each in self._identifiers]
        yield self._messages["ListAndWatchResponse"](devices=listed)
        await asyncio.Event().wait()

    async def _allocate(self, request: Any, _context: Any) -> Any:
        answers = []
        for container in request.container_requests:
            given = ",".join(sorted(container.devices_ids))
            variable = self._messages["Entry"](key="NVIDIA_VISIBLE_DEVICES", value=given)
            answers.append(self._messages["ContainerAllocateResponse"](envs=[variable]))
        return self._messages["AllocateResponse"](container_responses=answers)

    async def _register(self) -> None:
        async with grpc.aio.insecure_channel(f"unix:{self._directory / _KUBELET}") as channel:
            register = channel.unary_unary(
                f"/{_VERSION}.Registration/Register",
                request_serializer=_encoded,
                response_deserializer=self._messages["Empty"].FromString,
            )
            request = self._messages["RegisterRequest"](
                version=_VERSION, endpoint=_SOCKET, resource_name=RESOURCE
            )
            await register(request, timeout=10)
        print(f"registered {len(self._identifiers)} GPUs", file=sys.stderr)


def _classes() -> dict[str, Any]:
    """Return the classes of the messages."""
    file = descriptor_pb2.FileDescriptorProto(
        name="deviceplugin.proto", package=_VERSION, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeats in fields:
            label = _FIELD.LABEL_REPEATED if repeats else _FIELD.LABEL_OPTIONAL
            if kind == "string":
                added = _FIELD(name=field, number=number, label=label, type=_FIELD.TYPE_STRING)
            else:
                added = _FIELD(name=field, number=number, label=label, type=_FIELD.TYPE_MESSAGE)
                added.type_name = f".{_VERSION}.{kind}"
            message.field.append(added)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClassesForFiles([file.name], pool)
    return {name.removeprefix(f"{_VERSION}."): each for name, each in found.items()}


def _encoded(message: Any) -> bytes:
    return bytes(message.SerializeToString())


async def _main(given: argparse.Namespace) -> None:
    work = asyncio.current_task()
    assert work is not None, "asyncio.run makes a task"
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, work.cancel)
    try:
        await GpuPlugin(given.directory, devices(given.node, given.count)).run()
    except asyncio.CancelledError:
        return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m fakes.gpuplugin", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="of the kubelet's socket")
    parser.add_argument("--node", required=True, help="its name; the identifiers follow from it")
    parser.add_argument("--count", type=int, default=8, help="how many GPUs")
    asyncio.run(_main(parser.parse_args()))
