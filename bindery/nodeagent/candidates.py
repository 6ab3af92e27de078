"""Converts pods and their Node object to the input of the admission checks. Pure.

Used by `kubelets` and by `containers.resources`. Resources of a container that a claim serves
(KEP-5004) are left out, as in the kubelet: the driver of the claim allocates them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeVar

from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects import taints
from bindery.kube.objects.declaredfeatures import required_features
from bindery.kube.objects.labels import selects_node
from bindery.kube.objects.podspec import Container, ResourceRequirements
from bindery.kube.objects.watched import Node
from bindery.nodeagent.pod_objects import AgentPod, AgentPodSpec, PodSecurityContext
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodecore import pods
from bindery.nodecore.admission.facts import Candidate, HostPort

_ALWAYS: Final = "Always"
_NO_EXECUTE: Final = "NoExecute"
_MEMORY_PRESSURE: Final = "node.kubernetes.io/memory-pressure"
_TCP: Final = "TCP"
_RUNNING: Final = "Running"
_HASHABLE = tuple[tuple[str, str], ...]
PodT = TypeVar("PodT", bound=AgentPod)


def candidate_of(pod: AgentPod, node: Node) -> Candidate:
    """Return the input of the admission checks of `node`; raises QuantityError."""
    spec = pod.spec
    tolerations = spec.tolerations or ()
    node_taints = node.spec.taints or ()
    return Candidate(
        pod=core_pod(pod),
        labels=pod.metadata.labels,
        tolerates_memory_pressure=any(
            one.key in ("", _MEMORY_PRESSURE) and one.operator == "Exists" for one in tolerations
        ),
        tolerates_no_execute=all(
            taints.tolerates(tolerations, taint)
            for taint in node_taints
            if taint.effect == _NO_EXECUTE
        ),
        matches_node_affinity=_is_selected(pod, node),
        node_name=spec.node_name,
        os=spec.os.name if spec.os is not None else None,
        sysctls=_sysctls(spec.security_context),
        host_network=spec.host_network,
        host_ipc=spec.host_ipc,
        host_ports=_host_ports(spec),
        required_features=required_features(spec),
        is_pending=pod.status.phase in ("", "Pending"),
    )


def allocatable_of(node: ManagedNode, seen: Node) -> Mapping[str, int]:
    """Return the amounts available to pods: the node's own and others' additions to the Node."""
    own = node.machine.allocatable
    listed = (seen.status.allocatable or {}).items()
    more = {name: text for name, text in listed if name not in own}
    return {**own, **pods.resources(more)} if more else own


def in_order_of_restoration(
    present: Iterable[PodT], is_recorded: Callable[[str], bool]
) -> tuple[list[PodT], list[PodT]]:
    """Return the pods to admit when an agent starts: running pods, and then the others.

    Pods that hold resources come before pods that hold none, then the older before the younger.
    `is_recorded`: whether the pod of a UID holds resources.
    """

    def order(pod: PodT) -> tuple[bool, str, str]:
        uid, created = pod.metadata.uid, pod.metadata.creation_timestamp or ""
        return not is_recorded(uid), created, uid

    left = [pod for pod in present if pod.status.phase not in ENDED_POD_PHASES]
    ordered = sorted(left, key=order)
    running = [pod for pod in ordered if pod.status.phase == _RUNNING]
    others = [
        pod
        for pod in ordered
        if pod.status.phase != _RUNNING and pod.metadata.deletion_timestamp is None
    ]
    return running, others


def _is_selected(pod: AgentPod, node: Node) -> bool:
    """Return whether the node selector and the required node affinity of `pod` select `node`."""
    spec, labels = pod.spec, node.metadata.labels
    if any(labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    if required is None:
        return True
    return selects_node(required.node_selector_terms, labels, node.metadata.name)


def core_pod(pod: AgentPod) -> pods.Pod:
    """Return the fields of `pod` that resource managers read; raises QuantityError."""
    spec = pod.spec
    served = _served_by_claims(pod)
    qos = pod.status.qos_class
    whole = spec.resources
    return pods.Pod(
        uid=pod.metadata.uid,
        containers=[_container(one, served.get(one.name, ())) for one in spec.containers],
        init_containers=[
            _container(one, served.get(one.name, ())) for one in spec.init_containers or ()
        ],
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        requests=None if whole is None else _amounts(whole.requests),
        limits=None if whole is None else _amounts(whole.limits),
        qos_class=pods.QosClass(qos) if qos else None,
        overhead=_amounts(spec.overhead),
        priority=spec.priority,
    )


def _container(container: Container, served: Collection[str]) -> pods.Container:
    wanted = container.resources or _NOTHING
    requests, limits = _amounts(wanted.requests), _amounts(wanted.limits)
    if served:
        requests = {name: size for name, size in requests.items() if name not in served}
        limits = {name: size for name, size in limits.items() if name not in served}
    return pods.Container(
        name=container.name,
        requests=requests,
        limits=limits,
        is_sidecar=container.restart_policy == _ALWAYS,
    )


_NOTHING: Final = ResourceRequirements()


def _served_by_claims(pod: AgentPod) -> dict[str, set[str]]:
    """Return the extended resources that claims serve, by container."""
    served: dict[str, set[str]] = {}
    status = pod.status.extended_resource_claim_status
    for mapping in status.request_mappings if status is not None else ():
        served.setdefault(mapping.container_name, set()).add(mapping.resource_name)
    return served


def _amounts(quantities: Mapping[str, str] | None) -> Mapping[str, int]:
    return _parsed(tuple(quantities.items())) if quantities else {}


@lru_cache(maxsize=4096)
def _parsed(quantities: _HASHABLE) -> Mapping[str, int]:
    """Return amounts; equal pods share one mapping, which must not be changed."""
    return pods.resources(dict(quantities))


def _sysctls(context: PodSecurityContext | None) -> tuple[str, ...]:
    listed = context.sysctls if context is not None else None
    return tuple(one.name for one in listed or ())


def _host_ports(spec: AgentPodSpec) -> tuple[HostPort, ...]:
    sidecars = [one for one in spec.init_containers or () if one.restart_policy == _ALWAYS]
    return tuple(
        (port.host_ip, port.protocol or _TCP, port.host_port)
        for container in (*sidecars, *spec.containers)
        for port in container.ports or ()
        if port.host_port
    )
