"""The use of GPUs by DCGM's exporter, which serves metrics in Prometheus' text form.

It knows the use of MIG instances, which NVML does not. With its mapping of pods, a series names the
pod that holds the GPU or instance; without it, only the GPU.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bindery.nodeagent.devices.inventory import DevicesUnreadableError, PodKey, UseReading

UTILIZATION: Final = "DCGM_FI_DEV_GPU_UTIL"
"""Percent of the time in which a kernel ran; not of GPUs in MIG mode."""
ENGINE_ACTIVE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""Ratio of the time in which the engine worked; also of MIG instances."""
_PERCENT: Final = {UTILIZATION: 1.0, ENGINE_ACTIVE: 100.0}
_INSTANCE: Final = "GPU_I_ID"
_UUID: Final = ("UUID", "uuid")
_POD: Final = (("namespace", "pod"), ("pod_namespace", "pod_name"))
"""Labels, and those of the exporter's option for names of its first versions."""
_ANSWER_S: Final = 5.0


class DcgmExporter:
    """Reads the exporter of this node at `url`, such as http://127.0.0.1:9400/metrics."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def use(self) -> UseReading:
        """Return how much each GPU and MIG instance is used, and the pods that hold them."""
        try:
            return read(await self._answer())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise DevicesUnreadableError(f"DCGM's exporter at {self._url}: {reason}") from error

    async def _answer(self) -> str:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        async with (
            aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session,
            session.get(self._url) as response,
        ):
            return await response.text()


def read(text: str) -> UseReading:
    """Return what an answer of the exporter has.

    Raises:
        ValueError: it is no such answer, or has neither metric.
    """
    found: defaultdict[str, int] = defaultdict(int)
    holders: defaultdict[PodKey, set[str]] = defaultdict(set)
    for sample in _samples(text):
        uuid = _label(sample, *_UUID)
        if not uuid or not math.isfinite(sample.value):
            continue
        # A GPU that is hardly used is used.
        percent = min(100, max(0, math.ceil(sample.value * _PERCENT[sample.name])))
        instance = sample.labels.get(_INSTANCE, "")
        device = f"{uuid}/{instance}" if instance else uuid
        for each in {device, uuid}:
            found[each] = max(found[each], percent)
        for namespace, name in _POD:
            if pod := sample.labels.get(name):
                holders[sample.labels.get(namespace, ""), pod].add(device)
    if not found:
        raise ValueError(f"it has neither {UTILIZATION} nor {ENGINE_ACTIVE} of any GPU")
    return UseReading(dict(found), _frozen(holders))


def _samples(text: str) -> Iterator[Sample]:
    # The exporter may have many other metrics, which need not be read.
    lines = (line for line in text.splitlines() if line.startswith(tuple(_PERCENT)))
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        yield from (sample for sample in family.samples if sample.name in _PERCENT)


def _label(sample: Sample, *names: str) -> str:
    return next((sample.labels[name] for name in names if name in sample.labels), "")


def _frozen(holders: Mapping[PodKey, set[str]]) -> dict[PodKey, frozenset[str]]:
    return {key: frozenset(devices) for key, devices in holders.items()}
