"""Prints how much each GPU is used, by NVML: `python -m bindery.nodeagent.devices.nvmluse`.

Run by `nvml.NvmlSource` every few seconds, so it imports little.
"""

import importlib
import json
import sys
from contextlib import suppress
from typing import Any


def read(nvml: Any) -> dict[str, int | None]:
    """Return UUID -> percent; None where NVML has none, as for a GPU in MIG mode.

    `nvml`: the initialised module `pynvml`.
    """
    found: dict[str, int | None] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        with suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
            key = uuid.decode() if isinstance(uuid, bytes) else str(uuid)
            found[key] = None
            found[key] = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return found


def main() -> None:
    """Print the use as JSON, or the reason why not, and exit with 1."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        sys.exit("the Python package nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
        found = read(nvml)
    except nvml.NVMLError as error:
        sys.exit(f"NVML: {error}")
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
