"""Child processes with a log file each, ended by process id and never by name.

Used by `local` for the control plane and by `components` for Bindery's own processes. A tethered
process dies with this one, however it ends; a detached one stays, and its `Record` lets a later
command stop it. The one invariant: a pid is signalled only while it is the process we started.
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
"""How long a process may take to end after SIGTERM, by default, in seconds."""
_POLL_SECONDS = 0.05
_LOG_LINES_IN_ERRORS = 15
_starter = ThreadPoolExecutor(1, "process-starter")
"""Starts every process: to the kernel, the parent of a process is the thread that started it, so
that a tethered process would end with a short-lived thread of its creator."""


@dataclass(frozen=True)
class Command:
    """What to run, and where its output goes."""

    name: str
    arguments: Sequence[str]
    """The program's absolute path, then its arguments."""
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's own environment."""


@dataclass(frozen=True)
class Record:
    """What it takes to find a process again from another one."""

    name: str
    pid: int
    started: str
    """The start time in the kernel's own form: together with the pid it is unique."""
    grace_s: float = STOP_S
    """How long it may take to end after SIGTERM, in seconds."""


@dataclass(frozen=True)
class Detached:
    """What goes on after its creator has let go of it, and how it is taken down."""

    processes: tuple[Record, ...]
    """In the order in which they are to be stopped."""
    command: tuple[str, ...] = ()
    """Run after that, where something else must go too; empty: nothing."""


class Process:
    """One running command. Only its creator signals it."""

    def __init__(self, command: Command, *, tethered: bool, starter: Executor = _starter) -> None:
        """Start `command`; its output is appended to its log.

        `starter`: threads that start it, and that live as long as it is tethered.
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
        """Return the data with which another process can stop this one, with `grace_s` to end."""
        return Record(self.name, self.pid, start_time(self.pid), grace_s)

    def wait(self, timeout_s: float) -> int:
        """Wait for the end and return the exit code.

        Raises:
            ProcessError: it still runs after `timeout_s`.
        """
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise self.error(f"is still running after {timeout_s:.0f} s") from error

    def check(self) -> None:
        """Check that it runs.

        Raises:
            ProcessError: it has ended.
        """
        if not self.is_running:
            raise self.error(f"ended with exit code {self.exit_code}")

    def kill(self) -> None:
        """End it as a crash does (SIGKILL), and wait until it is gone."""
        self._child.kill()
        self._child.wait()

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Ask it to end (SIGTERM), and kill it when it has not after `timeout_s`."""
        self._child.terminate()
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        """Freeze it (SIGSTOP), as a machine that hangs does."""
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._child.send_signal(signal.SIGCONT)

    def wait_until(self, check: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until `check` holds while the process runs.

        Raises:
            ProcessError: it ended, or `check` does not hold after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not check():
            if not self.is_running:
                raise self.error(f"ended with exit code {self.exit_code} before {what}")
            if time.monotonic() > deadline:
                raise self.error(f"{what}: not after {timeout_s:.0f} s")
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
