"""The node's addresses: from its settings, its name, or the cloud provider."""

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from bindery.nodecore.errors import NodeCoreError

HOSTNAME: Final = "Hostname"
INTERNAL_IP: Final = "InternalIP"

PROVIDED_NODE_IP: Final = "alpha.kubernetes.io/provided-node-ip"

POLL_PERIOD_S: Final = 10.0

INSTANCE_TYPE_LABELS: Final = (
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)
ZONE_LABELS: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
REGION_LABELS: Final = (
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/region",
)


class AddressError(NodeCoreError):
    """The node's address cannot be found out; the caller tries again later."""


@dataclass(frozen=True)
class Address:
    """An address of the node's status.

    Attributes:
        kind: "Hostname", "InternalIP", "ExternalIP", "InternalDNS" or "ExternalDNS".
    """

    kind: str
    address: str


@dataclass(frozen=True)
class Settings:
    """The settings of a node from which its addresses follow.

    Attributes:
        node_ips: its IP addresses, at most two; 0.0.0.0 and :: only choose the family.
        is_external: whether an external cloud provider looks after the node.
    """

    name: str
    hostname: str
    node_ips: Sequence[str] = ()
    is_external: bool = False

    @property
    def given(self) -> list[str]:
        """The configured addresses, without 0.0.0.0 and ::."""
        return [one for one in self.node_ips if not ipaddress.ip_address(one).is_unspecified]

    @property
    def prefers_ipv4(self) -> bool:
        """Whether IPv4 addresses are preferred."""
        return not self.node_ips or ipaddress.ip_address(self.node_ips[0]).version == 4


@dataclass(frozen=True)
class Lookup:
    """How addresses are found out.

    Attributes:
        check: raises AddressError if an address is none of this machine.
        by_name: returns the addresses of a name in DNS.
        of_default_route: returns the address of the interface with the default route, of the
            family of the address that is given; raises AddressError.
    """

    check: Callable[[str], None]
    by_name: Callable[[str], Iterable[str]]
    of_default_route: Callable[[str | None], str]


def annotations(settings: Settings, present: Mapping[str, str]) -> dict[str, str]:
    """Return the node's annotations: an external cloud provider reads the node's addresses."""
    left = {name: text for name, text in present.items() if name != PROVIDED_NODE_IP}
    if settings.is_external and _is_first_given(settings):
        left[PROVIDED_NODE_IP] = ",".join(settings.given)
    return left


def addresses(settings: Settings, present: Sequence[Address], lookup: Lookup) -> list[Address]:
    """Return the node's addresses.

    Addresses from an external cloud provider stay. Otherwise the order is: the configured
    addresses, the host name if it is one, DNS, and the interface with the default route.

    Raises:
        AddressError: a configured address is wrong, or none can be found.
    """
    for given in settings.given:
        lookup.check(given)
    host = Address(HOSTNAME, settings.hostname)
    if settings.is_external:
        if present:
            return list(present)
        if not settings.node_ips:
            return [host]
    if _is_first_given(settings):
        return [*(Address(INTERNAL_IP, one) for one in settings.given), host]
    return [Address(INTERNAL_IP, _found(settings, lookup)), host]


def _is_first_given(settings: Settings) -> bool:
    return bool(settings.given) and settings.given[0] == settings.node_ips[0]


def _found(settings: Settings, lookup: Lookup) -> str:
    with suppress(ValueError):  # the host name may be a name
        return str(ipaddress.ip_address(settings.hostname))
    other: str | None = None
    for one in lookup.by_name(settings.name):
        try:
            lookup.check(one)
        except AddressError:
            continue
        if (ipaddress.ip_address(one).version == 4) == settings.prefers_ipv4:
            return one
        other = other or one
    if other is not None:
        return other
    try:
        return lookup.of_default_route(settings.node_ips[0] if settings.node_ips else None)
    except AddressError as error:
        raise AddressError(
            f"can't get ip address of node {settings.name}. error: {error}"
        ) from error


class CloudAddresses:
    """The addresses that a cloud provider reports; failures leave the last good ones."""

    def __init__(self) -> None:
        self._addresses: tuple[Address, ...] | None = None
        self._error: Exception | None = None

    @property
    def is_known(self) -> bool:
        """Whether the provider has answered or failed; before that a caller waits."""
        return self._addresses is not None or self._error is not None

    def poll(self, ask: Callable[[], Iterable[Address]]) -> None:
        """Ask the provider once; AddressError is its failure."""
        try:
            self._addresses = tuple(ask())
            self._error = None
        except AddressError as error:
            self._error = error

    def addresses(self) -> tuple[Address, ...]:
        """Return the last reported addresses; raises AddressError before the first report."""
        if self._addresses is None:
            reason = self._error or "no answer yet"
            raise AddressError(f"failed to get node address from cloud provider: {reason}")
        return self._addresses


@dataclass(frozen=True)
class Instance:
    """What a cloud provider knows of a machine. Empty texts are not known.

    Attributes:
        provider_id: its id, such as "aws:///zone/id".
        kind: its instance type.
    """

    provider_id: str = ""
    kind: str = ""
    zone: str = ""
    region: str = ""
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True)
class CloudNode:
    """What a cloud provider adds to a node."""

    provider_id: str
    labels: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[Address, ...] = ()


def cloud_node(node: CloudNode, instance: Instance) -> CloudNode:
    """Return the node with what the provider knows; an id that is set already stays."""
    values = {
        INSTANCE_TYPE_LABELS: instance.kind,
        ZONE_LABELS: instance.zone,
        REGION_LABELS: instance.region,
    }
    added = {name: text for names, text in values.items() if text for name in names}
    return CloudNode(
        node.provider_id or instance.provider_id,
        {**node.labels, **added},
        instance.addresses or node.addresses,
    )
