"""Plays the life of a pod's volumes in a mount namespace of its own, and prints what is left.

`unshare --mount --propagation=private python -m tests.nodeagent.volumes.killedstory PLACE PLAN`.
PLAN is JSON: a list of stories with the change at which their process is killed. A CSI driver runs
beside them and is never killed. The output is JSON: for each story its exit status, the number of
changes, and the files and mounts after it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from bindery.nodeagent.volumes.mounts import LinuxMounter

_STAMP = re.compile(r"\.\.2\d{3}_[\w.]+")
_LOOP = re.compile(r"/dev/loop\d+")


def files(root: Path) -> list[str]:
    """Return the files below `root` with their modes, without names that chance has chosen."""
    found = []
    for path in sorted(root.rglob("*")):
        try:
            state = path.lstat()
        except FileNotFoundError:
            continue  # the driver still works on the last call of a killed agent
        target = f" -> {os.readlink(path)}" if path.is_symlink() else ""  # noqa: PTH115
        content = ""
        if path.is_file() and path.suffix == ".json":
            content = f" {path.read_text().strip()}"
        name = str(path.relative_to(root))
        text = f"{oct(state.st_mode)} {state.st_gid} {name}{target}{content}"
        found.append(_LOOP.sub("/dev/loopN", _STAMP.sub("..STAMP", text)))
    return sorted(found)


def mounts(root: Path) -> list[str]:
    """Return the mounts below `root`."""
    return sorted(
        f"{one.place.relative_to(root)} {one.kind} {_LOOP.sub('loopN', one.root)}"
        if one.kind != "devtmpfs"
        else f"{one.place.relative_to(root)} device"
        for one in LinuxMounter().mounts()
        if one.place.is_relative_to(root)
    )


def loops(place: Path) -> int:
    """Return the number of loop devices on files below `place`."""
    listed = subprocess.run(["losetup", "-n", "-l", "-O", "BACK-FILE"], capture_output=True,
                            text=True, check=True)  # fmt: skip
    return sum(line.strip().startswith(str(place)) for line in listed.stdout.splitlines())


def main(place: Path, plan: list[tuple[str, str]]) -> None:
    """Play the stories of `plan`."""
    root, socket, state = place / "kubelet", place / "csi.sock", place / "state"
    command = [sys.executable, "-P", "-m"]
    driver = subprocess.Popen(
        [*command, "tests.nodeagent.volumes.csidriver", str(socket), str(state)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "ready\n"
    after = []
    try:
        for story, at in plan:
            done = subprocess.run(
                [*command, "tests.nodeagent.volumes.dyingnode", str(root), str(socket), story, at],
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            after.append(
                {
                    "status": done.returncode,
                    "changes": int((done.stdout.splitlines() or ["0"])[-1]),
                    "files": files(root),
                    "mounts": mounts(root),
                    "loops": loops(place),
                }
            )
    finally:
        driver.kill()
        driver.wait()
    print(json.dumps(after))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
