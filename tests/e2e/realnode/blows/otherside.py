"""The other side of a node's agent: its CSI driver, device plugin, DRA driver, and the runtime.

`python -m tests.e2e.realnode.blows.otherside` serves all four in the node; the runtime's calls
are passed on to containerd. When a call of the file `BLOWS` comes, the agent is killed at the
moment that the file names, by SIGKILL, and a line is added to the file `DEALT`. Calls of the file
`HELD` get no answer.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from bindery.nodeagent.sockets import deviceplugins, pluginregistry, services
from bindery.nodeagent.sockets.definitions import deviceplugin_pb2 as device_api
from bindery.nodeagent.sockets.definitions import dra_pb2
from bindery.nodeagent.sockets.pluginregistry import RegisteredPlugin
from bindery.nodeagent.sockets.services import Methods
from devcluster.realnode.configuration import RUNTIME_SOCKET, SHARED
from tests.e2e.realnode.blows import filewatch
from tests.nodeagent.volumes import csidriver
from tests.nodeagent.volumes.csidriver import Driver

BLOWS: Final = "blows.json"
DEALT: Final = "dealt"
HELD: Final = "held.json"
"""Call -> a word: such calls with the word in their request are never answered."""
SOCKET: Final = "/run/otherside.sock"
"""Where the runtime is served to the agent."""
STATE: Final = "/var/lib/blown-driver"
"""The directory of the drivers."""
RESOURCE: Final = "test.bindery.dev/blown"
DEVICES: Final = ("first", "second")
CLAIMS: Final = "blown.test.bindery.dev"
"""The DRA driver."""
_PLUGINS: Final = Path("/var/lib/kubelet")

Work = Callable[[], Awaitable[Any]]


@dataclass(frozen=True)
class Blow:
    """One blow.

    Attributes:
        call: the side and the method, such as `csi NodeStageVolume`.
        moment: `arrived` kills before the call is carried out, `midway` while it is, `done` before
            the answer, `answered` after it.
        delay_s: how long after that.
    """

    call: str
    moment: str
    delay_s: float = 0.0


class Dealer:
    """Deals the first blow of those in a file whose call comes; `place` is its directory.

    Calls of an agent that has died are carried out, before the next agent gets an answer.
    containerd 2.2 loses shims, tasks and mounts if it gives calls up half way, and CRI does not
    show them any more.
    """

    def __init__(self, place: Path) -> None:
        self._file, self._dealt, self._held = place / BLOWS, place / DEALT, place / HELD
        self._left: set[asyncio.Future[Any]] = set()

    async def carried_out(self, call: str, request: bytes, work: Work) -> Any:
        """Carry out a call of the agent, with the blow if it is meant, or hold it for ever."""
        if self._is_held(call, request):
            await asyncio.Event().wait()
        while self._left:
            await asyncio.wait(set(self._left))
        blow = self._taken(call)
        if blow is not None and blow.moment == "arrived":
            self._deal(blow)
        elif blow is not None and blow.moment == "midway":
            asyncio.get_running_loop().call_later(blow.delay_s, self._deal, blow)
        carried = asyncio.ensure_future(work())
        try:
            found = await asyncio.shield(carried)
        except asyncio.CancelledError:
            self._left.add(carried)
            carried.add_done_callback(self._forget)
            raise
        if blow is not None and blow.moment == "done":
            self._deal(blow)
        elif blow is not None and blow.moment == "answered":
            asyncio.get_running_loop().call_later(blow.delay_s, self._deal, blow)
        return found

    def _forget(self, carried: asyncio.Future[Any]) -> None:
        self._left.discard(carried)
        if not carried.cancelled():
            carried.exception()  # the caller that would have got it has died

    def _is_held(self, call: str, request: bytes) -> bool:
        try:
            word = json.loads(self._held.read_text()).get(call)
        except FileNotFoundError:
            return False
        return word is not None and word.encode() in request

    def _taken(self, call: str) -> Blow | None:
        try:
            blows = [Blow(**one) for one in json.loads(self._file.read_text())]
        except FileNotFoundError:
            return None
        blow = next((one for one in blows if one.call == call), None)
        if blow is not None:
            self._file.unlink(missing_ok=True)
        return blow

    def _deal(self, blow: Blow) -> None:
        pid = filewatch.agent()
        if pid is not None and not filewatch.end(pid):
            pid = None
        with self._dealt.open("a") as file:
            file.write(f"{blow.call} {blow.moment} {pid}\n")


class DealingDriver(Driver):
    """The tests' CSI driver."""

    dealer: Dealer

    def _one_by_one(self, answer: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Any]:
        whole = super()._one_by_one(answer)
        name = f"csi {getattr(answer, '__name__', '')}"

        async def dealing(request: Any) -> Any:
            text = request.SerializeToString()
            return await self.dealer.carried_out(name, text, lambda: whole(request))

        return dealing


class Plugin:
    """A device plugin with two devices."""

    def methods(self) -> Methods:
        return {
            "Allocate": self._allocate,
            "GetPreferredAllocation": self._prefer,
            "PreStartContainer": self._pre_start,
        }

    async def list_devices(
        self, _request: device_api.Empty
    ) -> AsyncIterator[device_api.ListAndWatchResponse]:
        listed = [device_api.Device(ID=each, health=deviceplugins.HEALTHY) for each in DEVICES]
        yield device_api.ListAndWatchResponse(devices=listed)
        await asyncio.Event().wait()

    async def _allocate(self, request: device_api.AllocateRequest) -> device_api.AllocateResponse:
        answers = [
            device_api.ContainerAllocateResponse(envs={"BLOWN": ",".join(one.devices_ids)})
            for one in request.container_requests
        ]
        return device_api.AllocateResponse(container_responses=answers)

    async def _prefer(
        self, request: device_api.PreferredAllocationRequest
    ) -> device_api.PreferredAllocationResponse:
        answers = [
            device_api.ContainerPreferredAllocationResponse(
                deviceIDs=sorted(one.available_deviceIDs)[: one.allocation_size]
            )
            for one in request.container_requests
        ]
        return device_api.PreferredAllocationResponse(container_responses=answers)

    async def _pre_start(self, _request: object) -> device_api.PreStartContainerResponse:
        return device_api.PreStartContainerResponse()


class ClaimsDriver:
    """A DRA driver whose devices are a variable of the container."""

    _ID: Final = f"{CLAIMS}/claim=one"

    def __init__(self, directory: Path) -> None:
        edits = {"env": ["CLAIMED=yes"]}
        body = {
            "cdiVersion": "0.6.0",
            "kind": f"{CLAIMS}/claim",
            "devices": [{"name": "one", "containerEdits": edits}],
        }
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "blown.json").write_text(json.dumps(body))

    def methods(self) -> Methods:
        return {"NodePrepareResources": self._prepare, "NodeUnprepareResources": self._unprepare}

    async def _prepare(
        self, request: dra_pb2.NodePrepareResourcesRequest
    ) -> dra_pb2.NodePrepareResourcesResponse:
        device = dra_pb2.Device(
            pool_name="blown", device_name="one", request_names=["one"], cdi_device_ids=[self._ID]
        )
        answer = dra_pb2.NodePrepareResourceResponse(devices=[device])
        uids = [one.uid for one in request.claims]
        return dra_pb2.NodePrepareResourcesResponse(claims=dict.fromkeys(uids, answer))

    async def _unprepare(
        self, request: dra_pb2.NodeUnprepareResourcesRequest
    ) -> dra_pb2.NodeUnprepareResourcesResponse:
        answer = dra_pb2.NodeUnprepareResourceResponse()
        uids = [one.uid for one in request.claims]
        return dra_pb2.NodeUnprepareResourcesResponse(claims=dict.fromkeys(uids, answer))


class PassedOn(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Passes calls of the agent on to the runtime, as they are."""

    def __init__(self, dealer: Dealer) -> None:
        self._dealer = dealer
        options = (("grpc.default_authority", "localhost"),)
        self._runtime = grpc.aio.insecure_channel(f"unix:{RUNTIME_SOCKET}", options=options)

    def service(self, details: Any) -> Any:
        send = self._runtime.unary_unary(details.method)
        name = details.method.rpartition("/")[2]

        async def passed(request: bytes, context: Any) -> bytes:
            async def work() -> bytes:
                found: bytes = await send(request, timeout=context.time_remaining())
                return found

            try:
                answer: bytes = await self._dealer.carried_out(f"cri {name}", request, work)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details())
                raise
            return answer

        return grpc.unary_unary_rpc_method_handler(passed)


def _dealing(dealer: Dealer, side: str, methods: Methods) -> Methods:
    def wrapped(name: str, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        async def dealing(request: Any) -> Any:
            text = request.SerializeToString()
            return await dealer.carried_out(f"{side} {name}", text, lambda: answer(request))

        return dealing

    return {name: wrapped(name, answer) for name, answer in methods.items()}


def _runtime(dealer: Dealer) -> grpc.aio.Server:
    Path(SOCKET).unlink(missing_ok=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((PassedOn(dealer),))
    server.add_insecure_port(f"unix:{SOCKET}")
    return server


def _drivers(dealer: Dealer, own: Path) -> list[grpc.aio.Server]:
    """Return the servers of both drivers, and then the ones that register them."""
    registry = _PLUGINS / "plugins_registry"
    for place in (registry, own):
        place.mkdir(parents=True, exist_ok=True)
    driver = DealingDriver(own)
    driver.dealer = dealer
    claims = _dealing(dealer, "dra", ClaimsDriver(Path("/etc/cdi")).methods())
    service = dra_pb2.DESCRIPTOR.services_by_name["DRAPlugin"]
    csi = RegisteredPlugin(pluginregistry.CSI, csidriver.NAME, str(own / "csi.sock"), ["1.0.0"])
    dra = RegisteredPlugin(pluginregistry.DRA, CLAIMS, str(own / "dra.sock"), ["v1.DRAPlugin"])
    return [
        driver.server(own / "csi.sock"),
        services.serve(own / "dra.sock", (service, claims)),
        pluginregistry.server(registry / f"{csidriver.NAME}-reg.sock", csi),
        pluginregistry.server(registry / f"{CLAIMS}-reg.sock", dra),
    ]


async def _serve() -> None:
    dealer = Dealer(Path(SHARED))
    servers = [_runtime(dealer), *_drivers(dealer, Path(STATE))]  # they end with their last name
    for server in servers:
        await server.start()
    plugin = Plugin()
    methods = {"ListAndWatch": plugin.list_devices, **_dealing(dealer, "device", plugin.methods())}
    options = device_api.DevicePluginOptions(
        pre_start_required=True, get_preferred_allocation_available=True
    )
    await deviceplugins.run(_PLUGINS / "device-plugins", "blown.sock", RESOURCE, methods, options)


if __name__ == "__main__":
    asyncio.run(_serve())
