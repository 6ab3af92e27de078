"""The hosts file and the name servers of a pod. Pure.

Source: `managedHostsFileContent` and `network/dns` of the kubelet, Kubernetes 1.36.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from bindery.nodeagent.containers.podspec import DnsOption, HostAlias, RunPod

MOST_HOSTNAME: Final = 63
_MOST_SERVERS: Final = 3
_NDOTS: Final = "ndots:5"
_MANAGED: Final = "# Kubernetes-managed hosts file.\n"
_OF_NODE: Final = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL: Final = (
    ("127.0.0.1", "localhost"),
    ("::1", "localhost ip6-localhost ip6-loopback"),
    ("fe00::0", "ip6-localnet"),
    ("fe00::0", "ip6-mcastprefix"),
    ("fe00::1", "ip6-allnodes"),
    ("fe00::2", "ip6-allrouters"),
)


@dataclass(frozen=True)
class Resolver:
    """Name servers, search domains and options, as in resolv.conf."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterNames:
    """The cluster's own name servers and domain; without servers, pods use the node's."""

    servers: tuple[str, ...] = ()
    domain: str = ""


def hostname(pod: RunPod) -> str:
    """Return the name of the pod's machine."""
    spec = pod.spec
    if spec.hostname_override is not None:
        return spec.hostname_override
    return (spec.hostname or pod.metadata.name)[:MOST_HOSTNAME].rstrip("-.")


def domain(pod: RunPod, names: ClusterNames) -> str:
    """Return the domain of the pod's machine, empty without a subdomain."""
    spec = pod.spec
    if not spec.subdomain or spec.hostname_override is not None:
        return ""
    return f"{spec.subdomain}.{pod.metadata.namespace}.svc.{names.domain}"


def hosts(pod: RunPod, addresses: Sequence[str], of_node: str, names: ClusterNames) -> str:
    """Return the content of the hosts file; `of_node`: that of the node."""
    aliases = _aliases(pod.spec.host_aliases or ())
    if pod.spec.host_network:
        return _OF_NODE + of_node + aliases
    lines = [f"{address}\t{name}" for address, name in _LOCAL]
    name, suffix = hostname(pod), domain(pod, names)
    full = f"{name}.{suffix}\t{name}" if suffix else name
    lines += [f"{address}\t{full}" for address in addresses]
    return _MANAGED + "\n".join(lines) + "\n" + aliases


def _aliases(aliases: Iterable[HostAlias]) -> str:
    lines = ["\t".join((one.ip, *(one.hostnames or ()))) for one in aliases]
    return (
        "".join(["\n# Entries added by HostAliases.\n", *(f"{line}\n" for line in lines)])
        if lines
        else ""
    )


def read_resolver(text: str) -> Resolver:
    """Return what a resolv.conf has."""
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.splitlines():
        key, *values = line.split()[:1] + line.split()[1:] if line.split() else [""]
        if key == "nameserver" and values:
            servers.append(values[0])
        elif key == "search":
            searches = values
        elif key == "options":
            options += values
    return Resolver(tuple(servers), tuple(searches), tuple(options))


def resolver(pod: RunPod, names: ClusterNames, of_node: Resolver) -> Resolver:
    """Return the resolver of a pod by its DNS policy and settings."""
    spec = pod.spec
    policy = spec.dns_policy
    if policy == "ClusterFirst" and spec.host_network:
        policy = "Default"
    if policy == "None":
        base = Resolver()
    elif policy == "Default" or not names.servers:
        base = of_node
    else:
        base = _of_cluster(pod.metadata.namespace, names, of_node)
    own = spec.dns_config
    if own is None:
        return base
    return Resolver(
        tuple(dict.fromkeys((*base.servers, *(own.nameservers or ()))))[:_MOST_SERVERS],
        tuple(dict.fromkeys((*base.searches, *(own.searches or ())))),
        _merged(base.options, own.options or ()),
    )


def _of_cluster(namespace: str, names: ClusterNames, of_node: Resolver) -> Resolver:
    searches: tuple[str, ...] = ()
    if names.domain:
        searches = (f"{namespace}.svc.{names.domain}", f"svc.{names.domain}", names.domain)
    together = tuple(dict.fromkeys((*searches, *of_node.searches)))
    return Resolver(names.servers[:_MOST_SERVERS], together, (_NDOTS,))


def _merged(options: Iterable[str], own: Iterable[DnsOption]) -> tuple[str, ...]:
    """Return the options with the pod's own, which replace those of the same name."""
    found = {text.partition(":")[0]: text for text in options}
    for one in own:
        found[one.name] = one.name if one.value is None else f"{one.name}:{one.value}"
    return tuple(found.values())
