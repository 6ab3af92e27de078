"""Runs modules of the tests as root in a mount namespace of their own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.required import lacking

_TOOLS: Final = ("unshare", "mount", "umount", "losetup", "blkid", "mkfs.ext4")
_ROOT: Final = Path(__file__).resolve().parents[3]
_STORY_S: Final = 300


def require_mounts() -> None:
    """Skip the test if this machine cannot mount."""
    if os.geteuid() != 0:
        lacking("only root can mount")
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        lacking(f"there is no {' and no '.join(missing)} on this machine")
    tried = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "true"], capture_output=True, check=False
    )
    if tried.returncode:
        lacking(f"this machine gives no mount namespace: {tried.stderr.decode().strip()}")


def require_loop_devices() -> None:
    """Skip the test if this machine has no loop devices."""
    if not Path("/dev/loop-control").exists():
        lacking("there is no /dev/loop-control on this machine")


def run_alone(module: str, *arguments: str) -> Any:
    """Run a module in a namespace in which its mounts end with it; return its last line's JSON."""
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation=private"),
            *(sys.executable, "-P", "-m", module, *arguments),
        ],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_STORY_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
