"""What the node, its pods and their containers use, for `kubectl top`.

A metrics server reads `/metrics/resource` of each node. Names and labels are the kubelet's,
Kubernetes 1.36; the figures are the runtime's and the kernel's.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from bindery.nodeagent.containers import labels
from bindery.nodeagent.containers.definitions import cri_pb2 as cri

_NS: Final = 1e9
_KIB: Final = 1024
_IDLE: Final = (3, 4)
"""Columns of idle and of waiting for disks in the line `cpu` of /proc/stat."""
_GUEST: Final = 8
"""Columns from here on are contained in earlier ones."""
_USED: Final = ("AnonPages", "Cached", "Buffers", "SwapCached")
"""Lines of /proc/meminfo: memory of processes, and the three parts of the pages of files."""


@dataclass(frozen=True)
class NodeUse:
    """What the node uses: seconds of CPUs since its start, and memory that cannot be reclaimed."""

    cpu_s: float
    memory_bytes: int


def node_use(proc: Path) -> NodeUse:
    """Return what this machine uses.

    Memory is that of processes and of files, without the inactive pages of files, as cAdvisor
    computes it for the root of cgroups, v1 and v2; the kernel's own does not count.

    Raises:
        OSError: /proc cannot be read.
    """
    first = (proc / "stat").read_text().splitlines()[0].split()[1:]
    ticks = sum(int(text) for n, text in enumerate(first[:_GUEST]) if n not in _IDLE)
    memory = {
        name: int(rest.split()[0]) * _KIB
        for name, _, rest in (
            line.partition(":") for line in (proc / "meminfo").read_text().splitlines()
        )
    }
    used = sum(memory[name] for name in _USED) - memory["Inactive(file)"]
    return NodeUse(ticks / os.sysconf("SC_CLK_TCK"), max(0, used))


@dataclass(frozen=True, eq=False)
class Uses:
    """What was measured.

    Attributes:
        node: None if it cannot be read.
        starts: container id -> when it was started, in ns since 1970.
    """

    node: NodeUse | None
    containers: Sequence[cri.ContainerStats]
    pods: Sequence[cri.PodSandboxStats]
    starts: dict[str, int]

    def collect(self) -> Iterable[Metric]:
        """Return the families of metrics; called by `prometheus_client`."""
        yield from self._of_containers()
        yield from self._of_pods()
        if self.node is not None:
            yield CounterMetricFamily(
                "node_cpu_usage_seconds",
                "Cumulative cpu time consumed by the node in core-seconds",
                self.node.cpu_s,
            )
            yield GaugeMetricFamily(
                "node_memory_working_set_bytes",
                "Current working set of the node in bytes",
                self.node.memory_bytes,
            )
        yield GaugeMetricFamily(
            "resource_scrape_error",
            "1 if there was an error while getting container metrics, 0 otherwise",
            1 if self.node is None else 0,
        )

    def _of_containers(self) -> Iterable[Metric]:
        names = ("container", "namespace", "pod")
        cpu = CounterMetricFamily(
            "container_cpu_usage_seconds",
            "Cumulative cpu time consumed by the container in core-seconds",
            labels=names,
        )
        memory = GaugeMetricFamily(
            "container_memory_working_set_bytes",
            "Current working set of the container in bytes",
            labels=names,
        )
        start = GaugeMetricFamily(
            "container_start_time_seconds",
            "Start time of the container since unix epoch in seconds",
            labels=names,
        )
        for one in self.containers:
            about = one.attributes
            found = about.labels
            values = [about.metadata.name, found[labels.POD_NAMESPACE], found[labels.POD_NAME]]
            if (started_ns := self.starts.get(about.id)) is not None:
                start.add_metric(values, started_ns / _NS)
            _add_use(cpu, memory, values, one.cpu, one.memory)
        return (cpu, memory, start)

    def _of_pods(self) -> Iterable[Metric]:
        names = ("namespace", "pod")
        cpu = CounterMetricFamily(
            "pod_cpu_usage_seconds",
            "Cumulative cpu time consumed by the pod in core-seconds",
            labels=names,
        )
        memory = GaugeMetricFamily(
            "pod_memory_working_set_bytes",
            "Current working set of the pod in bytes",
            labels=names,
        )
        for one in self.pods:
            about = one.attributes.metadata
            _add_use(cpu, memory, [about.namespace, about.name], one.linux.cpu, one.linux.memory)
        return (cpu, memory)


def exposition(uses: Uses) -> bytes:
    """Return the metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(uses)
    return generate_latest(registry)


def _add_use(
    cpu: CounterMetricFamily,
    memory: GaugeMetricFamily,
    values: Sequence[str],
    cpu_use: cri.CpuUsage,
    memory_use: cri.MemoryUsage,
) -> None:
    """Add the figures that the runtime has, each with the time of its measurement."""
    if cpu_use.HasField("usage_core_nano_seconds"):
        used_s = cpu_use.usage_core_nano_seconds.value / _NS
        cpu.add_metric(values, used_s, timestamp=cpu_use.timestamp / _NS)
    if memory_use.HasField("working_set_bytes"):
        used = memory_use.working_set_bytes.value
        memory.add_metric(values, used, timestamp=memory_use.timestamp / _NS)
