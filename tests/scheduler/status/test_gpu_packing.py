"""Waiting shares are packed into whole GPUs: each once, whole gangs, no overfull GPU."""

import math
from collections.abc import Hashable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from bindery.api.gpushare import WHOLE
from bindery.scheduler.status.gpu_packing import Amounts, Pack, ShareWant, pack

OVERHEAD = {0: 1}
ROOM = 20


def fits(kind: Hashable, gpus: int, amounts: Amounts) -> bool:
    return amounts.get(0, 0) <= ROOM * gpus


@st.composite
def gangs(draw: st.DrawFn) -> list[list[ShareWant]]:
    found = []
    for number in range(draw(st.integers(0, 8))):
        spreads = draw(st.booleans())
        found.append(
            [
                ShareWant(
                    uid=f"{number}-{index}",
                    job=number,
                    kind=draw(st.sampled_from("ab")),
                    portion=draw(st.integers(1, 10)) * (WHOLE // 10),
                    devices=draw(st.sampled_from([1, 1, 1, 2, 4])),
                    amounts={0: draw(st.integers(0, 30))},
                    spreads=spreads,
                    stays_alone=draw(st.sampled_from([False, False, False, True])),
                )
                for index in range(draw(st.integers(1, 4)))
            ]
        )
    return found


def packed(asked: Sequence[Sequence[ShareWant]], most: int) -> list[Pack]:
    return pack(asked, most, OVERHEAD, fits)


@given(asked=gangs(), most=st.integers(1, 30))
def test_each_gang_is_packed_once_or_not_at_all_within_the_limit(
    asked: list[list[ShareWant]], most: int
) -> None:
    packs = packed(asked, most)

    found = [want.uid for each in packs for want in each.wants]
    assert len(found) == len(set(found))
    assert sum(each.gpus for each in packs) <= most
    for gang in asked:
        inside = [want.uid in found for want in gang]
        assert all(inside) or not any(inside)


@given(asked=gangs(), most=st.integers(1, 30))
def test_no_pack_is_overfull(asked: list[list[ShareWant]], most: int) -> None:
    for each in packed(asked, most):
        taken = sum(want.portion * want.devices for want in each.wants)
        assert sum(each.free) == each.gpus * WHOLE - taken
        assert min(each.free) >= 0
        assert each.amounts[0] == each.gpus + sum(want.amounts[0] for want in each.wants)
        assert {want.kind for want in each.wants} == {each.kind}
        assert all(want.devices <= each.gpus for want in each.wants)
        if len(each.wants) > 1:
            assert fits(each.kind, each.gpus, each.amounts)
            assert not any(want.stays_alone for want in each.wants)
        for on_device in each.jobs:
            assert all(on_device[want.job] <= 1 for want in each.wants if want.spreads), (
                "pods that spread share no device with their job"
            )


@given(asked=gangs(), most=st.integers(1, 30))
def test_a_gang_is_skipped_only_if_it_exceeds_the_limit(
    asked: list[list[ShareWant]], most: int
) -> None:
    packs = packed(asked, most)

    found = {want.uid for each in packs for want in each.wants}
    used = sum(each.gpus for each in packs)
    for gang in asked:
        if gang[0].uid not in found:
            assert used + sum(want.devices for want in gang) > most


@given(asked=gangs())
def test_the_packs_of_the_first_gangs_are_kept_when_others_are_added(
    asked: list[list[ShareWant]],
) -> None:
    few, all_ = packed(asked[:-1], 1000), packed(asked, 1000)

    for before, after in zip(few, all_, strict=False):
        uids = [want.uid for want in before.wants]
        assert [want.uid for want in after.wants][: len(uids)] == uids


@given(tenths=st.lists(st.integers(1, 10), max_size=40))
def test_plain_shares_need_at_most_twice_the_gpus_of_their_sum(tenths: list[int]) -> None:
    wants = [
        ShareWant(str(number), number, "", part * (WHOLE // 10), 1, {})
        for number, part in enumerate(tenths)
    ]

    gpus = sum(each.gpus for each in pack([[want] for want in wants], 1000, {}, fits))

    assert math.ceil(sum(tenths) / 10) <= gpus <= max(len(tenths) and 1, sum(tenths) * 2 // 10)
