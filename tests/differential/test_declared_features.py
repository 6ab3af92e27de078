"""The node features that a pod requires are inferred as by Kubernetes' own package."""

from random import Random
from typing import Any

import msgspec
import pytest

from bindery.kube.objects.declaredfeatures import FEATURES, required_features
from bindery.kube.objects.podspec import PodSpec
from bindery.nodecore.features import DECLARABLE
from tests.goprograms import ask

pytestmark = pytest.mark.e2e  # needs the Go modules of the control plane

Manifest = dict[str, Any]
CASES = 300
LATER = {"VolumeBindMountOptions"}
"""Features that only the next Kubernetes knows."""


def pod(seed: int) -> Manifest:
    r = Random(seed)

    def container(name: str) -> Manifest:
        actions = r.choices(("Restart", "RestartAllContainers"), k=r.choice((0, 0, 1, 2)))
        rules = [{"action": action} for action in actions]
        return {"name": name, **({"restartPolicyRules": rules} if rules else {})}

    spec: Manifest = {"containers": [container("main"), container("more")]}
    if r.random() < 0.5:
        spec["initContainers"] = [container("init")]
    if r.random() < 0.5:
        spec["hostNetwork"] = r.random() < 0.5
    if r.random() < 0.5:
        spec["hostUsers"] = r.random() < 0.5
    return {"spec": spec}


def test_a_pod_requires_the_features_that_kubernetes_infers() -> None:
    pods = [pod(seed) for seed in range(CASES)]

    answers = ask("features", pods)

    ours = [list(required_features(msgspec.convert(each["spec"], PodSpec))) for each in pods]
    assert ours == [answer["required"] for answer in answers]
    assert {len(each) for each in ours} == {0, 1, 2}


def test_each_feature_of_kubernetes_is_known() -> None:
    (answer,) = ask("features", [pod(0)])

    assert set(answer["known"]) == DECLARABLE.keys()
    assert FEATURES.keys() - LATER <= DECLARABLE.keys()
