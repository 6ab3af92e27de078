"""What a cloud provider knows of the node: its type, zone, region, id and addresses.

A provider is a JSON file that others write, or a URL that answers with such JSON. Source: the cloud
resource manager of the kubelet, which asked in each status period and kept the last good answer.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol, Self

import aiohttp
import structlog
from pydantic import AfterValidator, Field, ValidationError, model_validator

from bindery.api import names
from bindery.api.base import ApiModel
from bindery.nodeagent.identity import metrics
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodecore.addresses import (
    HOSTNAME,
    POLL_PERIOD_S,
    Address,
    AddressError,
    CloudAddresses,
    CloudNode,
    Instance,
    cloud_node,
)

_ANSWER_S: Final = 5.0

log = structlog.get_logger(__name__)


def _label_value(text: str) -> str:
    if text and not names.LABEL_VALUE.fullmatch(text):
        raise ValueError(f"{text!r} is not a label value (63 of A-Z a-z 0-9 - _ .)")
    return text


Label = Annotated[str, AfterValidator(_label_value)]


class AddressFact(ApiModel):
    """An address, as in the status of a Node."""

    type: Literal["Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS"]
    address: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _is_of_its_type(self) -> Self:
        if self.type.endswith("IP"):
            ipaddress.ip_address(self.address)
        return self


class InstanceFacts(ApiModel):
    """The JSON that describes a machine; all keys may be missing."""

    provider_id: str = Field(default="", alias="providerID")
    instance_type: Label = ""
    zone: Label = ""
    region: Label = ""
    addresses: tuple[AddressFact, ...] = ()


class CloudProvider(Protocol):
    """Knows the machine on which the agent runs."""

    async def answer(self) -> bytes:
        """Return the JSON; raises AddressError."""


class FileProvider:
    """The file that another program writes."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def answer(self) -> bytes:
        """Return the JSON; raises AddressError."""
        try:
            return self._file.read_bytes()
        except OSError as error:
            raise AddressError(f"{self._file}: {error.strerror}") from error


class UrlProvider:
    """A server that answers a GET."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def answer(self) -> bytes:
        """Return the JSON; raises AddressError."""
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session,
                session.get(self._url) as response,
            ):
                return await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise AddressError(f"{self._url}: {str(error) or type(error).__name__}") from error


def instance_of(answer: bytes) -> Instance:
    """Return the instance that JSON describes; raises AddressError if it is not valid."""
    try:
        facts = InstanceFacts.model_validate_json(answer)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise AddressError(f"{where}: {first['msg']}" if where else first["msg"]) from error
    return Instance(
        facts.provider_id,
        facts.instance_type,
        facts.zone,
        facts.region,
        tuple(Address(one.type, one.address) for one in facts.addresses),
    )


class CloudRequestManager:
    """Asks a provider; failures leave the last good answer."""

    def __init__(
        self,
        provider: CloudProvider,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._provider, self._pause = provider, pause
        self._addresses = CloudAddresses()
        self._instance = Instance()

    async def wait(self) -> None:
        """Wait for the first good answer."""
        while not await self.poll():
            await self._pause(POLL_PERIOD_S)

    async def run(self, changed: Callable[[], None]) -> None:
        """Ask in each period, and call `changed` after another answer; does not return."""
        while True:
            await self._pause(POLL_PERIOD_S)
            before = self._instance
            await self.poll()
            if self._instance != before:
                log.info("the cloud provider has another answer")
                changed()

    async def poll(self) -> bool:
        """Ask once; return whether there is a good answer, of now or of an earlier time."""
        try:
            found = instance_of(await self._provider.answer())
        except AddressError as error:
            metrics.CLOUD_FAILURES.inc()
            self._addresses.poll(_failing(error))
        else:
            self._instance = found
            self._addresses.poll(lambda: found.addresses)
        try:
            self._addresses.addresses()
        except AddressError as error:
            log.warning("the node waits for its cloud provider", error=str(error))
            return False
        return True

    def described(self, node: ManagedNode) -> ManagedNode:
        """Return the node with what the provider knows."""
        found = cloud_node(CloudNode(node.provider_id, node.labels, node.addresses), self._instance)
        addresses = found.addresses
        if addresses and all(one.kind != HOSTNAME for one in addresses):
            addresses = (*addresses, Address(HOSTNAME, node.name))
        return replace(
            node, provider_id=found.provider_id, labels=dict(found.labels), addresses=addresses
        )


def _failing(error: AddressError) -> Callable[[], tuple[Address, ...]]:
    def fail() -> tuple[Address, ...]:
        raise error

    return fail
