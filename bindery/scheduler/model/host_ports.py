"""The host ports of a pod, as kube-scheduler counts them (Kubernetes 1.36).

A pod holds the ports of its containers and of its sidecars. An init container that ends before the
others start does not count.
"""

from collections.abc import Iterator
from typing import NamedTuple

from bindery.kube.objects.podspec import ContainerPort, PodSpec

ANY_ADDRESS = "0.0.0.0"  # noqa: S104  what the API takes for no address


class HostPort(NamedTuple):
    """A port of a node."""

    port: int
    protocol: str
    address: str

    def conflicts(self, other: "HostPort") -> bool:
        """Return whether no two pods on one node may have these two ports."""
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        return self.address == other.address or ANY_ADDRESS in (self.address, other.address)


def host_ports(spec: PodSpec) -> frozenset[HostPort]:
    """Return the host ports of a pod."""
    return frozenset(
        HostPort(port.host_port, port.protocol or "TCP", port.host_ip or ANY_ADDRESS)
        for port in _ports(spec)
        if port.host_port > 0
    )


def _ports(spec: PodSpec) -> Iterator[ContainerPort]:
    for container in spec.containers:
        yield from container.ports or ()
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            yield from container.ports or ()
