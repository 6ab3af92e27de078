"""Details of a node's NUMA zones, which the node agent writes on its NodeResourceTopology.

A NodeResourceTopology has only amounts for each zone. With the CPUs, cores and devices themselves,
a scheduler can predict more of the kubelet's decisions. The struct is the JSON of the annotation
`names.NUMA_DETAIL_ANNOTATION`. Written by the node agent, read by the scheduler. Pure.
"""

import msgspec


class PodZones(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The part of a node's zones that one pod holds."""

    held: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """Zone name -> resource -> amount exclusively for the pod: whole CPUs, bytes, devices."""
    memory: list[list[str]] = msgspec.field(default_factory=list)
    """Groups of several zones whose memory the pod uses together."""


class NumaDetail(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The state of a node in one report. Lists of CPUs are text such as "0-31,64-95"."""

    pods: list[str] = msgspec.field(default_factory=list)
    """UIDs of the pods whose resources the report has deducted, sorted."""
    cpu_manager_policy: str = "none"
    """none or static."""
    cpu_manager_options: dict[str, str] = msgspec.field(default_factory=dict)
    """Option -> value, such as full-pcpus-only: "true"."""
    memory_manager_policy: str = "None"
    """None or Static."""
    topology_options: dict[str, str] = msgspec.field(default_factory=dict)
    """Options of the topology manager."""
    cpus: dict[str, str] = msgspec.field(default_factory=dict)
    """Zone name -> all CPUs of the zone."""
    free: str = ""
    """Unreserved CPUs that no container owns exclusively."""
    cores: list[str] = msgspec.field(default_factory=list)
    """The CPUs (threads) of each core."""
    uncore_caches: list[str] | None = None
    """The CPUs of each uncore cache; None if the node reports none."""
    devices: dict[str, dict[str, list[str]]] = msgspec.field(default_factory=dict)
    """Resource -> zone name, "" for no zone -> ids of healthy devices that no container holds."""
    held: dict[str, PodZones] | None = None
    """UID of one of `pods` -> its part; without pods that hold nothing. None: not reported."""
    memory_groups: dict[str, list[str]] | None = None
    """Zone name -> the zones whose memory is used together with its own, itself included; without
    zones whose memory is unused. None: not reported."""

    def encode(self) -> str:
        """Return the JSON of the annotation."""
        return msgspec.json.encode(self).decode()


def decode(text: str) -> NumaDetail:
    """Return the detail in the annotation's `text`.

    Raises:
        msgspec.DecodeError: `text` is not such JSON.
    """
    return msgspec.json.decode(text, type=NumaDetail)
