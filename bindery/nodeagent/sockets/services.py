"""gRPC on Unix sockets: calls to a service, and serving one, by its published definition."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

CallError: Final = grpc.RpcError
"""What a call raises that gets no answer, or an error."""


class ConnectionEndedError(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """The caller's own side has closed the connection."""

    def __init__(self) -> None:
        super().__init__("rpc error: code = Canceled desc = grpc: the client connection is closing")


_OPTIONS: Final = (
    # The default has the path of the socket, which not every server takes.
    ("grpc.default_authority", "localhost"),
    # Another connection to the same path can be one to a socket that has been replaced.
    ("grpc.use_local_subchannel_pool", 1),
)


class Peer:
    """The other side of a socket, which serves `service`. Use it as a context manager.

    `service`: its definition, or its full name if another version has the same messages.
    """

    def __init__(self, socket: Path, service: ServiceDescriptor | str) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._service = service if isinstance(service, str) else service.full_name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection and the calls on it."""
        await self._channel.close()

    async def connect(self, timeout_s: float) -> None:
        """Wait for the connection; raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._channel.channel_ready()

    async def connections(self) -> AsyncIterator[bool]:
        """Yield whether the connection is up, at each change; connect again when it is lost."""
        state = self._channel.get_state(try_to_connect=True)
        while state != grpc.ChannelConnectivity.SHUTDOWN:
            yield state == grpc.ChannelConnectivity.READY
            await self._channel.wait_for_state_change(state)
            state = self._channel.get_state(try_to_connect=True)

    async def call(self, method: str, request: Message, answer: type[M], timeout_s: float) -> M:
        """Call a method and return its answer.

        Raises:
            CallError: there is no answer in `timeout_s`, or an error.
        """
        send = self._channel.unary_unary(
            self._path(method), request_serializer=_encoded, response_deserializer=answer.FromString
        )
        try:
            found: M = await send(request, timeout=timeout_s)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise ConnectionEndedError from None  # by `close`, while another task waits
        return found

    async def stream(self, method: str, request: Message, answer: type[M]) -> AsyncIterator[M]:
        """Call a method that answers with a stream; raises CallError when the stream breaks."""
        send = self._channel.unary_stream(
            self._path(method), request_serializer=_encoded, response_deserializer=answer.FromString
        )
        async for found in send(request):
            yield found

    def _path(self, method: str) -> str:
        return f"/{self._service}/{method}"


def reason(error: grpc.RpcError) -> str:
    """Return the text of a failed call, as gRPC for Go prints it."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return str(error)
    code = error.code().name.title().replace("_", "")
    return f"rpc error: code = {code} desc = {error.details()}"


class Refusal(Exception):  # noqa: N818  an answer, not a failure
    """Raised by a served method: the caller gets an error with this text.

    Attributes:
        code: the gRPC code, such as `grpc.StatusCode.NOT_FOUND`.
    """

    def __init__(self, message: str, code: grpc.StatusCode = grpc.StatusCode.UNKNOWN) -> None:
        super().__init__(message)
        self.code = code


Methods = dict[str, Callable[[Any], Any]]
"""Name of a method -> what answers: a coroutine function of the request, or, where the answer is a
stream, a function that returns an asynchronous iterator."""


def serve(socket: Path, *services: tuple[ServiceDescriptor, Methods]) -> grpc.aio.Server:
    """Return a server of `services` on a socket, for `start` and `stop`; removes an older socket.

    Methods without an entry answer UNIMPLEMENTED.
    """
    socket.unlink(missing_ok=True)
    server = grpc.aio.server()
    for service, methods in services:
        handlers = {
            name: _handler(service.methods_by_name[name], answer)
            for name, answer in methods.items()
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service.full_name, handlers),)
        )
    server.add_insecure_port(f"unix:{socket}")
    return server


def _handler(method: MethodDescriptor, answer: Callable[[Any], Any]) -> Any:
    decode = message_factory.GetMessageClass(method.input_type).FromString
    if method.server_streaming:

        async def answer_stream(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                async for found in answer(request):
                    yield found
            except Refusal as refusal:
                await context.abort(refusal.code, str(refusal))

        return grpc.unary_stream_rpc_method_handler(answer_stream, decode, _encoded)

    async def answer_one(request: Any, context: Any) -> Any:
        try:
            return await answer(request)
        except Refusal as refusal:
            await context.abort(refusal.code, str(refusal))

    return grpc.unary_unary_rpc_method_handler(answer_one, decode, _encoded)


def _encoded(message: Message) -> bytes:
    return bytes(message.SerializeToString())
