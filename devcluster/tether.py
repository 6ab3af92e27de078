"""Runs a program that ends with its parent: `tether.py PARENT_PID PROGRAM ARGUMENT...`.

Run by `processes` as a script, so that no Python code runs between fork and exec of a process with
threads. Even a parent killed with SIGKILL leaves no process behind: Linux sends SIGKILL to the
child when its parent ends (prctl(2), PR_SET_PDEATHSIG).
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Request the signal, then replace this process by the program."""
    parent_pid, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have ended before the request.
        if os.getppid() != int(parent_pid):
            sys.exit("the parent process has ended")
    os.execv(command[0], command)  # noqa: S606  the caller is `processes`


if __name__ == "__main__":
    main()
