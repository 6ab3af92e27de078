"""A container has variables for one request with shares; more are refused with the reason."""

from typing import Any

import msgspec
import pytest

from bindery.kube.objects.claims import ResourceClaim
from bindery.kube.objects.watched import Pod
from bindery.nodeagent.gpuclaims import consumers
from bindery.nodeagent.gpuclaims.grants import GrantError
from tests.nodeagent.gpuclaims.claimedgpus import result

BOTH = {"a": {"big", "small"}, "b": {"gpu"}}
"""Requests with shares, of two claims."""


def pod(*containers: dict[str, Any], **further: Any) -> Pod:
    """Return a pod whose entries `x` and `y` are the claims `a` (from a template) and `b`."""
    body = {
        "metadata": {"name": "train-0"},
        "spec": {
            "containers": list(containers),
            "resourceClaims": [
                {"name": "x", "resourceClaimTemplateName": "t"},
                {"name": "y", "resourceClaimName": "b"},
            ],
            **further,
        },
        "status": {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "a"}]},
    }
    return msgspec.convert(body, Pod)


def container(name: str, *uses: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "resources": {"claims": list(uses)}}


@pytest.mark.parametrize(
    "uses",
    [
        [{"name": "x", "request": "big"}],
        [{"name": "y"}],
        [{"name": "y"}, {"name": "y", "request": "gpu"}],
        [{"name": "x", "request": "other"}, {"name": "y"}],
        [{"name": "no-such-entry"}],
        [],
    ],
)
def test_a_container_can_use_one_request(uses: list[dict[str, str]]) -> None:
    consumers.check(pod(container("main", *uses)), BOTH)


@pytest.mark.parametrize(
    ("uses", "named"),
    [
        ([{"name": "x"}], "big of a, small of a$"),
        ([{"name": "x", "request": "big"}, {"name": "x", "request": "small"}], "big of a, small"),
        ([{"name": "x", "request": "big"}, {"name": "y"}], "big of a, gpu of b$"),
    ],
)
def test_a_container_that_uses_several_is_named(uses: list[dict[str, str]], named: str) -> None:
    with pytest.raises(GrantError, match=f"container main of pod train-0 .*: {named}"):
        consumers.check(pod(container("main", *uses)), BOTH)


def test_two_containers_can_use_a_request_each() -> None:
    one = container("one", {"name": "x", "request": "big"})
    two = container("two", {"name": "x", "request": "small"})

    consumers.check(pod(one, initContainers=[two]), BOTH)


def test_init_containers_are_checked_too() -> None:
    first = container("first", {"name": "x"})

    with pytest.raises(GrantError, match="container first"):
        consumers.check(pod(container("main"), initContainers=[first]), BOTH)


def test_extended_resources_count_as_the_request_that_serves_them() -> None:
    found = pod(container("main", {"name": "y"}))
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "r0"}
    extended = {"resourceClaimName": "e", "requestMappings": [mapping]}
    status = msgspec.convert({"extendedResourceClaimStatus": extended}, type(found.status))
    found = msgspec.structs.replace(found, status=status)

    assert consumers.claims_beside(found, "b") == {"e"}
    with pytest.raises(GrantError, match="gpu of b, r0 of e"):
        consumers.check(found, {"b": {"gpu"}, "e": {"r0"}})


def test_only_claims_of_one_container_are_beside_each_other() -> None:
    together = pod(container("main", {"name": "x"}, {"name": "y"}))
    apart = pod(container("one", {"name": "x"}), container("two", {"name": "y"}))

    assert consumers.claims_beside(together, "a") == {"b"}
    assert consumers.claims_beside(apart, "a") == set()


def test_only_requests_with_devices_of_this_driver_count() -> None:
    results = [result(request="gpu/big"), result(request="net", driver="other.example.com")]
    body = {"status": {"allocation": {"devices": {"results": results}}}}

    assert consumers.requests_of(msgspec.convert(body, ResourceClaim)) == {"gpu"}
    assert consumers.requests_of(ResourceClaim()) == frozenset()
