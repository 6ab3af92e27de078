"""The extended resources and DeviceClasses that queues count as GPUs, and the number of GPUs of
each.

Pure. For nodes the resource itself counts; quota, limit and share of GPUs apply to the sum over all
resources.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from bindery.api.names import GPU_RESOURCE, MIG_PREFIX

DEFAULT_GPU_RESOURCES: Final = (
    GPU_RESOURCE,
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "google.com/tpu",
)
DEFAULT_GPU_DEVICE_CLASSES: Final = (
    "gpu.nvidia.com",
    "mig.nvidia.com",
    "gpu.amd.com",
    "gpu.intel.com",
    "gaudi.intel.com",
)
MODEL_PREFIX: Final = "gpu-model/"
"""Prefix of a GPU model among resource names: the GPUs on nodes of that model."""
_MIG_PROFILE: Final = re.compile(r"(?P<slices>[12347])g\.[1-9][0-9]{0,2}gb(\.me|\.gfx|\.all)?")
"""NVIDIA's profiles: compute slices, memory, and attributes after a dot, as in resource names."""


def mig_slices(resource: str) -> int | None:
    """Return the compute slices of a MIG profile, a resource such as `nvidia.com/mig-1g.5gb`.

    None for a profile that does not exist.
    """
    profile = _MIG_PROFILE.fullmatch(resource.removeprefix(MIG_PREFIX))
    return int(profile["slices"]) if profile is not None else None


def unknown_profiles(resources: Sequence[str]) -> tuple[str, ...]:
    """Return the MIG resources among `resources` whose profile does not exist."""
    return tuple(r for r in resources if r.startswith(MIG_PREFIX) and mig_slices(r) is None)


class GpuResources:
    """The resources that match one of `patterns` (shell patterns), and MIG instances.

    `classes`: patterns for the DeviceClasses of allocated devices (DRA).
    """

    def __init__(
        self,
        patterns: Sequence[str] = DEFAULT_GPU_RESOURCES,
        classes: Sequence[str] = DEFAULT_GPU_DEVICE_CLASSES,
    ) -> None:
        self._patterns, self._classes = tuple(patterns), tuple(classes)
        self.counts_class = lru_cache(maxsize=1024)(self._counts_class)
        """Return whether devices of a DeviceClass count, each as one GPU."""
        self.gpus_of = lru_cache(maxsize=1024)(self._gpus_of)
        """Return the number of GPUs in one unit of a resource other than `nvidia.com/gpu`.

        A MIG instance counts its compute slices, as in KAI-Scheduler.
        """

    def _counts_class(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._classes)

    def _gpus_of(self, resource: str) -> int:
        if resource == GPU_RESOURCE:  # counts as itself
            return 0
        if resource.startswith(MIG_PREFIX):
            return mig_slices(resource) or 0
        return int(any(fnmatchcase(resource, pattern) for pattern in self._patterns))
