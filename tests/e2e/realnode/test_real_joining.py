"""Nodes join by certificate requests, and renew their certificates before they expire."""

import time
from pathlib import Path

import pytest

from devcluster.realnode import machine
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.plane import MOST_NODES
from tests.required import lacking

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long("minutes"),
]

CERTIFICATE_S = 60
CURRENT = "/var/lib/kubelet/pki/kubelet-client-current.pem"


@pytest.fixture(autouse=True)
def inside() -> None:
    """This test has a cluster of its own."""
    for reason in machine.lacks():
        lacking(reason, part="realnode")


def test_nodes_stay_ready_while_their_one_minute_certificates_are_renewed(
    tmp_path: Path,
) -> None:
    with RealCluster(tmp_path, print, certificate_s=CERTIFICATE_S) as cluster:
        nodes = [cluster.add_node(cluster.plan(number + 1)) for number in range(MOST_NODES)]
        first = [node.run("readlink", CURRENT) for node in nodes]
        time.sleep(2 * CERTIFICATE_S)

        for node, before in zip(nodes, first, strict=True):
            assert node.run("readlink", CURRENT) != before
            cluster.wait_ready(node.name)
