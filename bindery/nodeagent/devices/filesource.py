"""GPUs described by a YAML or JSON file: for tests, and for other makes than NVIDIA's."""

from pathlib import Path

from bindery.api import yamlfile
from bindery.nodeagent.devices.inventory import (
    DevicesUnreadableError,
    NodeGpu,
    NodeGpus,
    UseReading,
)


class FileSource:
    """Reads the file each time, so that a changed file is a change of the devices."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> tuple[NodeGpu, ...]:
        """Return the GPUs in the file, without their use."""
        without = {"utilization_percent": None}
        return tuple(gpu.model_copy(update=without) for gpu in self._read())

    async def use(self) -> UseReading:
        """Return how much each GPU is used, by the file."""
        return UseReading({gpu.uuid: gpu.utilization_percent for gpu in self._read()})

    def _read(self) -> tuple[NodeGpu, ...]:
        try:
            found = yamlfile.load(NodeGpus, self._path).gpus
        except yamlfile.FileError as error:
            raise DevicesUnreadableError(str(error)) from error
        if len({gpu.uuid for gpu in found}) < len(found):
            raise DevicesUnreadableError(f"{self._path}: a GPU is listed twice")
        return tuple(sorted(found, key=lambda gpu: (gpu.index, gpu.uuid)))
