"""What a process has used, and how many requests the API server has answered.

Read by `races` while the processes still run. Nothing is sampled: the kernel counts CPU time and
memory (proc(5)), and the API server counts requests (`apiserver_request_total`).
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_COUNTED: Final = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_WRITING: Final = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})


@dataclass(frozen=True)
class Usage:
    """Of one process, since it started."""

    cpu_s: float
    """User and system time."""
    peak_mb: float
    """The most memory it has held at once (VmHWM), in units of 1,000,000 bytes."""
    resident_mb: float = 0.0
    """The memory that it holds now (VmRSS)."""

    @classmethod
    def own(cls) -> Self:
        """Read that of this process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Self:
        """Read it; the process must run."""
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        # The name may hold blanks; utime and stime are fields 14 and 15, state is field 3.
        fields = stat.rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        lines = dict(line.split(":", 1) for line in status.splitlines())
        peak_mb, resident_mb = (
            int(lines[name].split()[0]) * 1024 / 1e6 for name in ("VmHWM", "VmRSS")
        )
        return cls(ticks / os.sysconf("SC_CLK_TCK"), peak_mb, resident_mb)


@dataclass(frozen=True)
class Writes:
    """Requests that write, which the API server has answered, whatever the answer was."""

    all: int
    events: int
    """Those that write Events."""

    @classmethod
    def of(cls, metrics: str) -> Self:
        """Read them from the text of the API server's metrics."""
        everything = events = 0
        for labels_text, count in _COUNTED.findall(metrics):
            labels = dict(_LABEL.findall(labels_text))
            if labels["verb"] not in _WRITING:
                continue
            everything += int(float(count))
            if labels["resource"] == "events":
                events += int(float(count))
        return cls(everything, events)

    def since(self, before: "Writes") -> "Writes":
        """Return what has been written since `before`."""
        return Writes(self.all - before.all, self.events - before.events)


NO_WRITES: Final = Writes(0, 0)
