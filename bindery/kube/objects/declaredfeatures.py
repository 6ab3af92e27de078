"""The features of a kubelet that a pod needs and that its node must declare (KEP-5328).

Used by the scheduler, which leaves out nodes without the features, and by hollow nodes, which
refuse such pods. The rules are those of Kubernetes 1.36 and 1.37; a test compares the names with
the registry of Kubernetes. Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from bindery.kube.objects.podspec import Container


class _Spec(Protocol):
    """A pod spec."""

    @property
    def containers(self) -> Sequence[Container]: ...
    @property
    def init_containers(self) -> Sequence[Container] | None: ...
    @property
    def host_network(self) -> bool: ...
    @property
    def host_users(self) -> bool | None: ...


def required_features(spec: _Spec) -> tuple[str, ...]:
    """Return the names of the features that a node must declare for a pod of `spec`, sorted."""
    return tuple(name for name, is_needed in FEATURES.items() if is_needed(spec))


def _all_containers(spec: _Spec) -> Iterator[Container]:
    yield from spec.containers
    yield from spec.init_containers or ()


def _restarts_all_containers(spec: _Spec) -> bool:
    return any(
        rule.action == "RestartAllContainers"
        for container in _all_containers(spec)
        for rule in container.restart_policy_rules or ()
    )


def _has_user_namespace_on_host_network(spec: _Spec) -> bool:
    return spec.host_network and spec.host_users is False


def _has_bind_mount_options(spec: _Spec) -> bool:
    return any(
        mount.bind_mount_options
        for container in _all_containers(spec)
        for mount in container.volume_mounts or ()
    )


FEATURES: Final[Mapping[str, Callable[[_Spec], bool]]] = {
    "RestartAllContainersOnContainerExits": _restarts_all_containers,
    "UserNamespacesHostNetworkSupport": _has_user_namespace_on_host_network,
    "VolumeBindMountOptions": _has_bind_mount_options,
}
"""Feature -> function that returns whether a pod needs the feature; sorted by name."""
