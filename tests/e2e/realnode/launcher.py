"""Starts a real node with a pod and waits: a process of its own, which tests stop and kill."""

import signal
import sys
import time
from pathlib import Path
from types import FrameType

from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.images import BUSYBOX

_POD = f"""
apiVersion: v1
kind: Pod
metadata: {{name: sleeper, namespace: default}}
spec:
  nodeName: node-1
  containers:
    - {{name: sleeper, image: "{BUSYBOX}", command: [sleep, "600"]}}
"""


def stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    with RealCluster(Path(sys.argv[1]), print) as cluster:
        cluster.add_node(cluster.plan(1))
        plane = cluster.control_plane
        plane.kubectl("apply", "--filename=-", stdin=_POD)
        phase = ("get", "pod", "sleeper", "--output=jsonpath={.status.phase}")
        while plane.kubectl(*phase) != "Running":
            time.sleep(0.2)
        print("running", flush=True)
        while True:
            signal.pause()


main()
