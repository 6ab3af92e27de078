"""Lets Kubernetes' conformance suite of CSI drivers test the tests' driver; prints what it found.

`python -m tests.nodeagent.volumes.conformancestory PLACE PROGRAM ACCESS`, in a mount namespace of
its own. ACCESS: `mount` or `block`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.nodeagent.volumes import csidriver
from tests.nodeagent.volumes.killedstory import loops, mounts

_SIZE, _LARGER = 16 << 20, 32 << 20


def main(place: Path, program: str, access: str) -> dict[str, Any]:
    socket, state, report = place / "csi.sock", place / "state", place / "report.json"
    driver = subprocess.Popen(
        [sys.executable, "-P", "-m", csidriver.__name__, str(socket), str(state)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "ready\n"
    try:
        subprocess.run(
            [
                program,
                f"--csi.endpoint=unix:{socket}",
                f"--csi.mountdir={place / 'target'}",
                f"--csi.stagingdir={place / 'staging'}",
                f"--csi.testvolumeaccesstype={access}",
                f"--csi.testvolumesize={_SIZE}",
                f"--csi.testvolumeexpandsize={_LARGER}",
                f"--ginkgo.json-report={report}",
            ],
            stdout=subprocess.DEVNULL,
            check=False,
        )
    finally:
        driver.terminate()
        driver.wait()
    (suite,) = json.loads(report.read_text())
    specs = [
        (
            " / ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]]),
            spec["State"],
            spec.get("Failure", {}).get("Message", ""),
        )
        for spec in suite["SpecReports"]
    ]
    left = [str(each.relative_to(state)) for each in state.rglob("*")]
    return {"specs": specs, "left": [*mounts(place), *left], "loops": loops(place)}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *sys.argv[2:])))
