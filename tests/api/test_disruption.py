"""Pods that request not to be disrupted."""

import math

import pytest

from bindery.api.disruption import Asks, asks, asks_until

ANNOTATED = Asks.BY_ANNOTATION


@pytest.mark.parametrize(
    ("annotations", "volumes", "expected"),
    [
        ({}, [], Asks.NOTHING),
        ({"scheduling.bindery.dev/do-not-disrupt": "true"}, [], Asks.BY_ANNOTATION),
        ({"scheduling.bindery.dev/do-not-disrupt": "false"}, [], Asks.NOTHING),
        ({"karpenter.sh/do-not-disrupt": "true"}, [], Asks.BY_ANNOTATION),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, [], Asks.BY_ANNOTATION),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"}, [], ANNOTATED),
        ({"karpenter.sh/do-not-disrupt": "4h30m"}, [], Asks.BY_ANNOTATION),
        ({"karpenter.sh/do-not-disrupt": "-4h"}, [], Asks.NOTHING),
        ({"karpenter.sh/do-not-disrupt": "soon"}, [], Asks.NOTHING),
        ({"karpenter.sh/do-not-disrupt": "9" * 1000 + "h"}, [], Asks.NOTHING),
        ({"karpenter.sh/do-not-disrupt": "9" * 30 + "h"}, [], Asks.NOTHING),
        ({}, ["scratch"], Asks.LOCAL_DATA),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, ["scratch"], Asks.NOTHING),
        (
            {"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "a, scratch"},
            ["scratch"],
            Asks.NOTHING,
        ),
        (
            {"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "a"},
            ["a", "scratch"],
            Asks.LOCAL_DATA,
        ),
        ({"karpenter.sh/do-not-disrupt": "true"}, ["a"], Asks.BY_ANNOTATION | Asks.LOCAL_DATA),
    ],
)
def test_annotations_of_three_projects_and_local_data_count(
    annotations: dict[str, str], volumes: list[str], expected: Asks
) -> None:
    assert asks(annotations, volumes) == expected


@pytest.mark.parametrize(
    ("annotations", "started", "expected"),
    [
        ({"karpenter.sh/do-not-disrupt": "4h"}, 100.0, 100.0 + 4 * 3600),
        ({"karpenter.sh/do-not-disrupt": "4h"}, None, math.inf),
        ({"karpenter.sh/do-not-disrupt": "true"}, 100.0, math.inf),
        (
            {
                "karpenter.sh/do-not-disrupt": "4h",
                "scheduling.bindery.dev/do-not-disrupt": "true",
            },
            100.0,
            math.inf,
        ),
        ({}, 100.0, math.inf),
    ],
)
def test_a_duration_ends_after_the_start_of_the_pod(
    annotations: dict[str, str], started: float | None, expected: float
) -> None:
    assert asks_until(annotations, started) == expected
