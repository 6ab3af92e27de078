"""The fields of a pod that the node agent reads.

A struct of its own beside `bindery.kube.objects.Pod`, because the scheduler needs other fields
and every declared field costs time at each of thousands of events.
"""

import msgspec

from bindery.kube.objects import Condition, KubeObject


class Container(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One container as the pod's author wrote it."""

    name: str = ""
    image: str = ""
    restart_policy: str | None = None
    """On an init container, `Always` makes it a sidecar (KEP-753)."""


class HollowPodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """`PodSpec`, as far as a hollow node reads it."""

    node_name: str = ""
    host_network: bool = False
    containers: list[Container] = msgspec.field(default_factory=list)
    init_containers: list[Container] | None = None


class HollowPodStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """`PodStatus`, as far as a hollow node reads it."""

    phase: str = ""
    start_time: str | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[Condition] | None = None


class HollowPod(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A bound pod."""

    spec: HollowPodSpec = msgspec.field(default_factory=HollowPodSpec)
    status: HollowPodStatus = msgspec.field(default_factory=HollowPodStatus)
