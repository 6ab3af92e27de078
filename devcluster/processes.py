"""Starts child processes, each with a log file, and ends them by process id, never by name.

Used by `local` for the control plane and by `components` for Bindery's own processes. A tethered
process ends with this process; a detached process stays, and a later command stops it by its
`Record`. Invariant: a pid is signalled only while it belongs to the process that was started.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from devcluster import tether
from devcluster.errors import ProcessError

STOP_S: Final = 10.0
"""Default seconds that a process may take to end after SIGTERM."""
_POLL_SECONDS = 0.05
_LOG_LINES_IN_ERRORS = 15
_starter = ThreadPoolExecutor(1, "process-starter")
"""Starts every process. For the kernel, the parent of a process is the thread that started it, so a
tethered process would end with a short-lived thread."""


@dataclass(frozen=True)
class Command:
    """A command with its log file."""

    name: str
    arguments: Sequence[str]
    """The program's absolute path, then its arguments."""
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's own environment."""


@dataclass(frozen=True)
class Record:
    """Identifies a process for another process."""

    name: str
    pid: int
    started: str
    """The start time in the kernel's own form: unique together with the pid."""
    grace_s: float = STOP_S
    """Seconds that the process may take to end after SIGTERM."""


@dataclass(frozen=True)
class Detached:
    """Processes that outlive their creator, and how to stop them."""

    processes: tuple[Record, ...]
    """Processes, in the order in which to stop them."""
    command: tuple[str, ...] = ()
    """Command to run afterwards, where something else must be deleted; empty: none."""


class Process:
    """One running command. Only its creator signals it."""

    def __init__(self, command: Command, *, tethered: bool, starter: Executor = _starter) -> None:
        """Start `command`; its output is appended to its log.

        `starter`: threads that start the process; they must live as long as a tethered process.
        """
        self.command = command
        arguments = list(command.arguments)
        if tethered:
            arguments = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *arguments]
        command.log.parent.mkdir(parents=True, exist_ok=True)
        with command.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches this process only, which then stops the
            # children in order.
            self._child = starter.submit(
                subprocess.Popen,
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **command.environment},
                start_new_session=True,
            ).result()
        self.pid = self._child.pid

    @property
    def name(self) -> str:
        """The command's name."""
        return self.command.name

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._child.poll()

    def record(self, grace_s: float = STOP_S) -> Record:
        """Return the record with which another process can stop this process."""
        return Record(self.name, self.pid, start_time(self.pid), grace_s)

    def wait(self, timeout_s: float) -> int:
        """Wait for the end and return the exit code.

        Raises:
            ProcessError: the process still runs after `timeout_s`.
        """
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise self.error(f"is still running after {timeout_s:.0f} s") from error

    def check(self) -> None:
        """Check that the process runs.

        Raises:
            ProcessError: the process has ended.
        """
        if not self.is_running:
            raise self.error(f"ended with exit code {self.exit_code}")

    def kill(self) -> None:
        """Kill the process (SIGKILL), as in a crash, and wait for the end."""
        self._child.kill()
        self._child.wait()

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Ask the process to end (SIGTERM), and kill it if it still runs after `timeout_s`."""
        self._child.terminate()
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP), like a machine that hangs."""
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process after `pause`."""
        self._child.send_signal(signal.SIGCONT)

    def wait_until(self, check: Callable[[], bool], awaited: str, timeout_s: float) -> None:
        """Wait until `check` holds while the process runs.

        Raises:
            ProcessError: the process ended, or `check` does not hold after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not check():
            if not self.is_running:
                raise self.error(f"ended with exit code {self.exit_code} before {awaited}")
            if time.monotonic() > deadline:
                raise self.error(f"{awaited}: not after {timeout_s:.0f} s")
            time.sleep(_POLL_SECONDS)

    def error(self, text: str) -> ProcessError:
        """Return an error that ends with the last lines of the log."""
        lines = self.command.log.read_text(errors="replace").splitlines()[-_LOG_LINES_IN_ERRORS:]
        tail = "\n  ".join(lines)
        return ProcessError(f"{self.name}: {text}; the end of {self.command.log}:\n  {tail}")


def stop_recorded(record: Record) -> bool:
    """Stop the process of `record`; return whether it was still there."""
    if not is_recorded_running(record):
        return False
    deadline = time.monotonic() + record.grace_s
    os.kill(record.pid, signal.SIGTERM)
    while is_recorded_running(record):
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGKILL)
            return True
        time.sleep(_POLL_SECONDS)
    return True


def is_recorded_running(record: Record) -> bool:
    """Return whether the process of `record` runs; a reused pid is another process."""
    return start_time(record.pid) == record.started != ""


def start_time(pid: int) -> str:
    """Return the start time of `pid`, "" when there is no such process or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The program's name may hold blanks and brackets; fields are counted from its last bracket:
    # state is field 3, start time field 22 of proc(5).
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]
