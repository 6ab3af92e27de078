"""How the Job controller treats pods that a node refuses, as docs/evictions.md states."""

import json
from typing import Any

import pytest

from tests.nodeagent.hollowagents import Agents, Cluster

pytestmark = pytest.mark.e2e

RECIPE = {
    "completionMode": "Indexed",
    "podFailurePolicy": {
        "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    },
}


def create(cluster: Cluster, node: str, **spec: Any) -> None:
    """Create the Job `job`, whose pods do not fit on `node` and are bound to it all the same."""
    main = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100"}}}
    pod = {"nodeName": node, "restartPolicy": "Never", "containers": [main]}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {"template": {"spec": pod}, **spec},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))


def conditions(cluster: Cluster) -> dict[str, str]:
    """Return type -> reason of the conditions of the Job."""
    found = cluster.get("job", "job")["status"].get("conditions", ())
    return {each["type"]: each["reason"] for each in found if each["status"] == "True"}


def test_a_plain_job_of_eight_fails_when_its_pods_are_refused(
    agents: Agents, cluster: Cluster
) -> None:
    agents.start(1, "--cpu=4")
    cluster.wait(f"node/{agents.node()}", "condition=Ready")

    create(cluster, agents.node(), completions=8, parallelism=8)

    cluster.eventually(lambda: conditions(cluster).get("Failed") == "BackoffLimitExceeded")


def test_a_refusal_counts_against_the_limit_of_its_index(agents: Agents, cluster: Cluster) -> None:
    agents.start(1, "--cpu=4")
    cluster.wait(f"node/{agents.node()}", "condition=Ready")

    create(cluster, agents.node(), completions=1, backoffLimitPerIndex=1, **RECIPE)

    cluster.eventually(lambda: conditions(cluster).get("Failed") == "FailedIndexes", 90)
    pods = json.loads(cluster.kubectl("get", "pods", "-o", "json"))["items"]
    assert {pod["status"]["reason"] for pod in pods} == {"OutOfcpu"}
    # Nothing that a rule of the policy could match.
    kinds = {each["type"] for pod in pods for each in pod["status"].get("conditions", ())}
    assert kinds <= {"PodScheduled"}
