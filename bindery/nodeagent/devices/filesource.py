"""GPUs described by a YAML or JSON file: for tests, and for other makes than NVIDIA's."""

from pathlib import Path

from bindery.api import yamlfile
from bindery.nodeagent.devices.inventory import DevicesUnreadableError, NodeGpu, NodeGpus


class FileSource:
    """Reads the file each time, so that a changed file is a change of the devices."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> tuple[NodeGpu, ...]:
        """Return the GPUs in the file."""
        try:
            found = yamlfile.load(NodeGpus, self._path).gpus
        except yamlfile.FileError as error:
            raise DevicesUnreadableError(str(error)) from error
        if len({gpu.uuid for gpu in found}) < len(found):
            raise DevicesUnreadableError(f"{self._path}: a GPU is listed twice")
        return tuple(sorted(found, key=lambda gpu: (gpu.index, gpu.uuid)))
