"""What a node uses, from its /proc."""

import os
from pathlib import Path

from bindery.nodeagent.containers.serving.resourcemetrics import NodeUse, node_use

_MEMORY_KIB = {
    "MemTotal": 24_000,
    "MemFree": 10_000,
    "Buffers": 60,
    "Cached": 4_000,
    "SwapCached": 5,
    "AnonPages": 1_000,
    "Inactive(file)": 1_300,
    "Slab": 900,
}


def test_memory_is_that_of_processes_and_of_files_in_use(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    columns = (ticks, 0, ticks, 50 * ticks, 7 * ticks, 0, ticks, 0, 9 * ticks, 0)
    (tmp_path / "stat").write_text(f"cpu  {' '.join(map(str, columns))}\ncpu0 1 2\n")
    lines = (f"{name}: {kib} kB\n" for name, kib in _MEMORY_KIB.items())
    (tmp_path / "meminfo").write_text("".join(lines))

    assert node_use(tmp_path) == NodeUse(3.0, (60 + 4_000 + 5 + 1_000 - 1_300) * 1024)
