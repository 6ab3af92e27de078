"""Claims that the pods of a PodGroup of `scheduling.k8s.io` share, and their users."""

from typing import Any

import msgspec
import pytest

from bindery.kube.objects.claims import ResourceClaim
from bindery.kube.objects.sharedclaims import SharingGroup
from bindery.kube.objects.watched import Pod
from bindery.scheduler.plugins.dra.references import (
    ClaimKey,
    ClaimReferenceError,
    Reference,
    references,
)

GROUP = {
    "metadata": {"namespace": "space", "name": "train", "uid": "group-1"},
    "spec": {
        "resourceClaims": [
            {"name": "fabric", "resourceClaimTemplateName": "fabric"},
            {"name": "store", "resourceClaimName": "store"},
        ]
    },
}


def pod(*claims: dict[str, Any], group: str | None = "train", made: str = "") -> Pod:
    body: dict[str, Any] = {
        "metadata": {"namespace": "space", "name": "worker", "uid": "pod-1"},
        "spec": {"resourceClaims": list(claims)},
    }
    if group is not None:
        body["spec"]["schedulingGroup"] = {"podGroupName": group}
    if made:
        body["status"] = {"resourceClaimStatuses": [{"name": "fabric", "resourceClaimName": made}]}
    return msgspec.convert(body, Pod)


def claim(name: str, owner: str = "") -> ResourceClaim:
    owners = [{"uid": owner, "controller": True, "kind": "PodGroup", "name": "x"}] if owner else []
    meta = {"namespace": "space", "name": name, "uid": f"{name}-1", "ownerReferences": owners}
    return msgspec.convert({"metadata": meta}, ResourceClaim)


def found(of: Pod, *claims: ResourceClaim) -> tuple[Reference, ...]:
    group = msgspec.convert(GROUP, SharingGroup)
    return references(
        of,
        {ClaimKey("space", each.metadata.name): each for each in claims},
        {ClaimKey("space", "train"): group},
    )


FABRIC = {"name": "fabric", "resourceClaimTemplateName": "fabric"}
STORE = {"name": "store", "resourceClaimName": "store"}


def test_a_claim_from_the_groups_template_belongs_to_the_group() -> None:
    (reference,) = found(pod(FABRIC, made="train-fabric"), claim("train-fabric", "group-1"))

    assert reference.user("pod-1") == "group-1"
    assert reference.consumer is not None
    assert msgspec.to_builtins(reference.consumer) == {
        "apiGroup": "scheduling.k8s.io",
        "resource": "podgroups",
        "name": "train",
        "uid": "group-1",
    }


def test_a_named_claim_of_the_group_belongs_to_the_group() -> None:
    (reference,) = found(pod(STORE), claim("store"))

    assert reference.user("pod-1") == "group-1"


@pytest.mark.parametrize(
    "other",
    [
        {"name": "disk", "resourceClaimName": "store"},
        {"name": "store", "resourceClaimName": "other"},
    ],
    ids=["another name", "another claim"],
)
def test_a_claim_that_differs_in_a_field_belongs_to_the_pod(other: dict[str, Any]) -> None:
    (reference,) = found(pod(other), claim("store"), claim("other"))

    assert reference.user("pod-1") == "pod-1"


def test_a_pod_without_a_group_shares_nothing() -> None:
    (reference,) = found(pod(STORE, group=None), claim("store"))

    assert reference.user("pod-1") == "pod-1"


def test_a_claim_of_a_deleted_group_of_the_same_name_is_refused() -> None:
    with pytest.raises(ClaimReferenceError, match="was not made for its PodGroup"):
        found(pod(FABRIC, made="train-fabric"), claim("train-fabric", "group-0"))


def test_a_pod_waits_for_the_group_that_may_share_its_claims() -> None:
    with pytest.raises(ClaimReferenceError, match=r"PodGroup late of scheduling\.k8s\.io"):
        found(pod(STORE, group="late"), claim("store"))
