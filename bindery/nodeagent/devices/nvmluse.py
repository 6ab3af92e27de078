"""Prints how much each GPU is used, by NVML: `python -m bindery.nodeagent.devices.nvmluse`.

Run by `nvml.NvmlSource` every few seconds, so it imports little.
"""

import importlib
import json
import sys
from collections.abc import Callable
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
            key = text(nvml.nvmlDeviceGetUUID(handle))
            found[key] = None
            found[key] = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return found


def text(value: str | bytes) -> str:
    """Return a text of NVML, which older libraries give as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def answer(ask: Callable[[Any], str]) -> None:
    """Print what `ask` returns of NVML, or the reason why not, and exit with 1."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        sys.exit("the Python package nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
        answered = ask(nvml)
    except nvml.NVMLError as error:
        sys.exit(f"NVML: {error}")
    sys.stdout.write(answered)


if __name__ == "__main__":
    answer(lambda nvml: json.dumps(read(nvml)))
