"""Ports that processes choose at the same time."""

import subprocess
import sys

from devcluster.ports import free_port

_CHOSEN = 200
"""So many of two processes would meet several times by chance."""
_SCRIPT = f"""
from devcluster.ports import free_port
print(*(free_port() for _ in range({_CHOSEN})), flush=True)
input()
"""


def test_processes_do_not_choose_the_same_ports() -> None:
    command = [sys.executable, "-c", _SCRIPT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = {int(word) for word in other.stdout.readline().split()}
        ours = {free_port() for _ in range(_CHOSEN)}
        other.communicate("\n", timeout=60)

    assert (len(theirs), len(ours)) == (_CHOSEN, _CHOSEN)
    assert not theirs & ours
