"""The resources in the status: what is allocated, and the limits of the runtime."""

from typing import Any

import pytest

from bindery.kube.objects.podspec import ContainerClaim, ResourceRequirements
from bindery.nodeagent.containers import statusresources
from bindery.nodecore.podsync.facts import RuntimeLimits
from tests.nodeagent.containers.harness import container, decoded, manifest

SMALL = {"cpu": "10m", "memory": "16Mi"}


@pytest.mark.parametrize(
    ("wanted", "limits", "shown"),
    [
        ({}, RuntimeLimits(2, 0, 0), {}),
        ({"requests": {"cpu": "1m"}}, RuntimeLimits(2, 0, 0), {"requests": {"cpu": "1m"}}),
        ({"requests": {"cpu": "1"}}, RuntimeLimits(500, 0, 0), {"requests": {"cpu": "500m"}}),
        ({"requests": {"memory": "1Gi"}}, RuntimeLimits(2, 0, 0), {"requests": {"memory": "1Gi"}}),
        ({"requests": {"cpu": "1"}}, None, {"requests": {"cpu": "1"}}),
        ({"limits": {"cpu": "5m"}}, RuntimeLimits(0, 10, 0), {"limits": {"cpu": "5m"}}),
        ({"limits": {"cpu": "50m"}}, RuntimeLimits(0, 20, 0), {"limits": {"cpu": "20m"}}),
        # A container with CPUs for itself has no quota.
        ({"limits": {"cpu": "2"}}, RuntimeLimits(2000, 0, 0), {"limits": {"cpu": "2"}}),
        (
            {"limits": {"memory": "16777216500m"}},
            RuntimeLimits(2, 0, 16777217),
            {"limits": {"memory": "16777217"}},
        ),
        (
            {"limits": {"example.com/gpu": "1"}},
            RuntimeLimits(2, 0, 0),
            {"limits": {"example.com/gpu": "1"}},
        ),
    ],
)
def test_a_running_container_shows_what_the_runtime_has_set(
    wanted: dict[str, Any], limits: RuntimeLimits | None, shown: dict[str, Any]
) -> None:
    found = statusresources.of_container(ResourceRequirements(**wanted), limits)

    assert found["resources"] == shown
    assert found.get("allocatedResources", {}) == wanted.get("requests", {})


def test_the_claims_of_a_container_are_shown() -> None:
    wanted = ResourceRequirements(claims=[ContainerClaim(name="gpu")])

    assert statusresources.of_container(wanted, None) == {
        "resources": {"claims": [{"name": "gpu"}]}
    }


@pytest.mark.parametrize(
    ("spec", "requests", "limits"),
    [
        ({}, {}, {}),
        ({"resources": {"requests": SMALL, "limits": SMALL}}, SMALL, SMALL),
        ({"overhead": {"cpu": "5m"}}, {"cpu": "5m"}, {}),
        (
            {"initContainers": [container("first", resources={"requests": {"cpu": "40m"}})]},
            {"cpu": "40m"},
            {},
        ),
    ],
)
def test_a_pod_shows_what_it_holds_as_a_whole(
    spec: dict[str, Any], requests: dict[str, str], limits: dict[str, str]
) -> None:
    found = statusresources.of_pod(decoded(manifest(container(), **spec)))

    assert found.get("allocatedResources", {}) == requests
    assert found["resources"].get("requests", {}) == requests
    assert found["resources"].get("limits", {}) == limits


def test_the_amounts_of_a_pod_are_exact() -> None:
    one = container("one", resources={"requests": {"memory": "16777216500m", "a.b/c": "2048"}})
    two = container("two", resources={"requests": {"memory": "500m", "cpu": "1500m"}})

    found = statusresources.of_pod(decoded(manifest(one, two)))

    assert found["allocatedResources"] == {"memory": "16777217", "a.b/c": "2048", "cpu": "1500m"}


def test_devices_are_healthy_or_not() -> None:
    found = statusresources.of_devices({"a.b/c": {"2": "Unhealthy", "1": "Healthy"}})

    assert found["allocatedResourcesStatus"] == [
        {
            "name": "a.b/c",
            "resources": [
                {"resourceID": "1", "health": "Healthy"},
                {"resourceID": "2", "health": "Unhealthy"},
            ],
        }
    ]
    assert statusresources.of_devices({}) == {}
