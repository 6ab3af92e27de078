"""The fence: which tokens are refused, and which announcements may be deleted."""

import pytest

from bindery.api.bindrequest import Phase
from bindery.api.names import FENCE_LABEL, NODE_POOL_LABEL
from bindery.binder.outcome.fencing import Fence
from bindery.kube.objects.bindrequests import BindRequest, BindRequestSpec, BindRequestStatus
from bindery.kube.objects.watched import Meta


def announcement(token: int, pool: str = "") -> BindRequest:
    labels = {FENCE_LABEL: "true"} | ({NODE_POOL_LABEL: pool} if pool else {})
    return BindRequest(
        metadata=Meta(
            name=f"{pool}term-{token}", namespace="n", uid=f"{pool}{token}", labels=labels
        ),
        spec=BindRequestSpec(fencing_token=token),
        status=BindRequestStatus(phase=Phase.SUCCEEDED),
    )


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1), (1, 3, 2)])
def test_all_announcements_of_a_pool_but_the_newest_may_be_deleted(order: tuple[int, ...]) -> None:
    fence = Fence()

    superseded = [fence.keep(announcement(token)) for token in order]

    assert {each.metadata.name for each in superseded if each is not None} == {"term-1", "term-2"}


def test_each_pool_keeps_an_announcement() -> None:
    fence = Fence()

    assert fence.keep(announcement(1, "a")) is None
    assert fence.keep(announcement(2, "b")) is None


def test_an_announcement_that_is_seen_again_is_kept() -> None:
    fence = Fence()

    assert fence.keep(announcement(1)) is None
    assert fence.keep(announcement(1)) is None
