"""The agent's certificates are rotated under load, and no call fails."""

import json
import re
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from devcluster.realnode import agentnode, machine
from devcluster.realnode.cluster import RealCluster
from tests.e2e.realnode.nodepods import pod
from tests.required import lacking

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long("minutes"),
    pytest.mark.timeout(1800),
]

CERTIFICATE_S = 180
ROTATIONS = 3
LONGEST_S = 900
PORT = 18080
SUCCEEDED = "--for=jsonpath={.status.phase}=Succeeded"
SERIES = re.compile(r"(?P<name>\w+?)(\{(?P<labels>.*)\})? (?P<value>\S+)")
ANSWERS = ("200", "201", "404", "409")
"""Also that an object is not there, or was there: a Lease before its creation, a pod that ended."""


@pytest.fixture(autouse=True)
def inside() -> None:
    """This test has a cluster of its own."""
    for reason in machine.lacks():
        lacking(reason, part="realnode")


def series(text: str, name: str) -> dict[str, float]:
    """Return the values of a metric by their labels."""
    found = (SERIES.fullmatch(line) for line in text.splitlines())
    return {
        one["labels"] or "": float(one["value"]) for one in found if one and one["name"] == name
    }


def test_certificates_are_rotated_under_load_without_a_failed_call(tmp_path: Path) -> None:
    with (
        RealCluster(tmp_path, print, certificate_s=CERTIFICATE_S) as cluster,
        agentnode.added(cluster, 3, f"--health-port={PORT}") as node,
        cluster.control_plane.network.entered(),
    ):
        plane = cluster.control_plane

        def metrics() -> str:
            with urlopen(f"http://127.0.0.1:{PORT}/metrics") as answer:
                text: str = answer.read().decode()
                return text

        def rotations(kind: str) -> float:
            found = series(metrics(), "bindery_nodeagent_certificate_requests_total")
            return found.get(f'certificate="{kind}",outcome="signed"', 0)

        def approve() -> None:
            for each in json.loads(plane.kubectl("get", "csr", "--output=json"))["items"]:
                if not each["status"]:
                    plane.kubectl("certificate", "approve", each["metadata"]["name"])

        def start(number: int) -> None:
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"load-{number}"},
                "spec": {**pod(command="exit 0"), "nodeName": node.name},
            }
            plane.kubectl("create", "--filename=-", stdin=json.dumps(body))

        start(0)
        plane.kubectl("wait", "pod/load-0", SUCCEEDED, "--timeout=60s")
        plane.kubectl("wait", f"node/{node.name}", "--for=condition=Ready", "--timeout=60s")
        deadline_s, count = time.monotonic() + LONGEST_S, 1
        while min(rotations("client"), rotations("serving")) <= ROTATIONS:
            assert time.monotonic() < deadline_s, metrics()
            start(count)
            count += 1
            approve()
            plane.kubectl("logs", "load-0")  # by the node's port
            assert plane.kubectl("get", "nodes", "--no-headers").split()[1] == "Ready"

        plane.kubectl("wait", "pod", "--all", SUCCEEDED, "--timeout=120s")
        text = metrics()
        calls = series(text, "bindery_api_requests_total")
        answered = {code for labels in calls for code in re.findall(r'code="(\w+)"', labels)}
        print(count, "pods", sum(calls.values()), "calls", answered, rotations("client"),
              rotations("serving"))  # fmt: skip
        assert answered <= set(ANSWERS)
        assert set(series(text, "bindery_watch_errors_total").values()) == {0}
        assert set(series(text, "bindery_watch_relists_total").values()) == {1}
