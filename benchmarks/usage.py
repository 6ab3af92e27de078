"""What a process has used, from proc(5).

Read by `races` while the process still runs; nothing is sampled, the kernel counts.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Usage:
    """Of one process, since it started."""

    cpu_s: float
    """User and system time."""
    peak_mb: float
    """The most memory it has held at once (VmHWM), in units of 1,000,000 bytes."""

    @classmethod
    def of(cls, pid: int) -> Self:
        """Read it; the process must run."""
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        # The name may hold blanks; utime and stime are fields 14 and 15, state is field 3.
        fields = stat.rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        peak_kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
        return cls(ticks / os.sysconf("SC_CLK_TCK"), int(peak_kib) * 1024 / 1e6)
