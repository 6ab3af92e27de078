"""Which pods ask to be left in place."""

import pytest

from bindery.api.disruption import Asks, asks


@pytest.mark.parametrize(
    ("annotations", "volumes", "expected"),
    [
        ({}, [], Asks.NOTHING),
        ({"scheduling.bindery.dev/do-not-disrupt": "true"}, [], Asks.BY_ANNOTATION),
        ({"scheduling.bindery.dev/do-not-disrupt": "false"}, [], Asks.NOTHING),
        ({"karpenter.sh/do-not-disrupt": "true"}, [], Asks.BY_ANNOTATION),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, [], Asks.BY_ANNOTATION),
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
