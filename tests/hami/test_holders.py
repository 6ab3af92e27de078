"""The conditions under which a node's lock may be taken from its holder."""

import pytest
from msgspec import structs

from bindery.api.hami import names
from bindery.api.hami.lock import NodeLock
from bindery.api.times import timestamp
from bindery.binder.plugins.hami import holders
from bindery.binder.plugins.hami.holders import Judgement
from bindery.binder.plugins.hami.objects import HolderPod, HolderSpec, HolderStatus
from bindery.kube.objects.watched import Meta

SINCE_S, EXPIRE_S = 1_000_000, 300.0
LOCK = NodeLock(SINCE_S, "team", "holder")


def holder(node: str = "", phase: str = "Pending", **annotations: str) -> HolderPod:
    meta = Meta(name="holder", namespace="team", uid="u", annotations=annotations)
    return HolderPod(
        metadata=meta, spec=HolderSpec(node_name=node), status=HolderStatus(phase=phase)
    )


def successor(node: str = "", **annotations: str) -> HolderPod:
    """Return a pod of the holder's name that was created after the lock."""
    created = timestamp(SINCE_S + 3)
    pod = holder(node, **annotations)
    return structs.replace(pod, metadata=structs.replace(pod.metadata, creation_timestamp=created))


UNBOUND = holders.judge(LOCK, holder(), "n0", EXPIRE_S)
ANONYMOUS = holders.judge_unknown(NodeLock(SINCE_S), EXPIRE_S)
MALFORMED = holders.judge_unknown(None, EXPIRE_S)
ALLOCATED = holders.judge(LOCK, holder("n0", **{names.BIND_PHASE: "success"}), "n0", EXPIRE_S)
GONE = holders.judge(LOCK, None, "n0", EXPIRE_S)
LIVE = holders.judge(LOCK, holder("n0"), "n0", EXPIRE_S)


@pytest.mark.parametrize(
    ("judgement", "age_s", "found_s", "taken"),
    [
        (UNBOUND, 299.0, 0.0, False),
        (UNBOUND, 300.0, 0.0, False),
        (UNBOUND, 300.001, 0.0, True),
        (ANONYMOUS, 300.0, 0.0, False),
        (ANONYMOUS, 300.001, 0.0, True),
        (MALFORMED, 299.0, 0.0, False),
        (MALFORMED, 300.0, 0.0, True),
        (ALLOCATED, 10.0, 9.5, False),
        (ALLOCATED, 10.0, 9.0, True),
        (GONE, 10.0, 10.0, True),
        (LIVE, 1_000_000.0, 0.0, False),
    ],
)
def test_a_lock_is_taken_only_if_it_is_older_than_its_expiry_time(
    judgement: Judgement, age_s: float, found_s: float, taken: bool
) -> None:
    now_s, first_s = SINCE_S + age_s, SINCE_S + found_s

    assert judgement.may_be_taken(now_s, first_s) is taken
    if taken:
        assert judgement.left_s(now_s, first_s) == 0.0


@pytest.mark.parametrize(
    ("pod", "age_s", "reason"),
    [
        (None, 0.0, "Dangling"),
        (holder(phase="Succeeded"), 0.0, "Ended"),
        (holder("n0", phase="Failed"), 0.0, "Ended"),
        (holder(), 1_000.0, ""),
        (holder("n0"), 1_000.0, ""),
        (holder("elsewhere"), 1_000.0, ""),
        (holder("n0", **{names.BIND_PHASE: "success"}), 1_000.0, ""),
        (holder("n0", "Running"), 1_000.0, ""),
        (successor(), EXPIRE_S, ""),
        (successor(), EXPIRE_S + 1, "Recreated"),
        (successor(**{names.ASSIGNED_NODE: "n0"}), EXPIRE_S + 1, ""),
    ],
)
def test_a_lock_without_waiters_is_kept_while_its_pod_may_be_alive(
    pod: HolderPod | None, age_s: float, reason: str
) -> None:
    assert holders.left_behind(LOCK, pod, "n0", SINCE_S + age_s, EXPIRE_S) == reason


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (successor(), "Recreated"),
        (successor(**{names.ASSIGNED_NODE: "n1"}), "Recreated"),
        (successor(**{names.ASSIGNED_NODE: "n0"}), "Unbound"),
        (successor("n0", **{names.ASSIGNED_NODE: "n0"}), "Allocating"),
    ],
)
def test_a_lock_is_not_taken_from_a_pod_whose_binder_has_a_clock_that_is_behind(
    pod: HolderPod, reason: str
) -> None:
    assert holders.judge(LOCK, pod, "n0", EXPIRE_S).reason == reason
