"""Reservations that are deleted, also while they are being made again."""

import asyncio
from typing import Any

import msgspec
import pytest

from bindery.api import gpushare
from bindery.binder.plugins.gpusharing import handover, healing
from bindery.binder.plugins.gpusharing.healing import Healer
from bindery.binder.plugins.gpusharing.objects import Sharer, SharerSpec
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.watched import Meta

SHARE = {gpushare.FRACTION_ANNOTATION: "0.5"}
USER = Sharer(
    metadata=Meta(
        name="user",
        namespace="team",
        uid="u",
        labels=gpushare.group_labels(["g"]),
        annotations={**SHARE, gpushare.RECORD_ANNOTATION: gpushare.record("u", SHARE, ("g",))},
    ),
    spec=SharerSpec(node_name="a"),
)


class Reservations:
    """Counts how often the reservation is made."""

    def __init__(self) -> None:
        self.made = 0
        self.is_made_again = asyncio.Event()

    def known(self) -> list[Sharer]:
        return []

    async def hold(self, *_: object) -> str:
        self.made += 1
        if self.made == 2:
            self.is_made_again.set()
        return "0"


async def test_a_reservation_deleted_during_its_recreation_is_created_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reservations: Any = Reservations()
    gone: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def handed_over(*_: object) -> list[str]:
        if reservations.made == 1:
            gone.put_nowait(("g", "a"))
            for _turn in range(5):
                await asyncio.sleep(0)  # until it has been seen
        return ["0"]

    monkeypatch.setattr(handover, "handed_over", handed_over)
    events: Any = None
    healer = asyncio.create_task(
        Healer(stored(USER), reservations, lambda: [USER], gone, events).run()
    )
    await asyncio.wait_for(reservations.is_made_again.wait(), 60)
    healer.cancel()
    await asyncio.gather(healer, return_exceptions=True)


@pytest.mark.parametrize(
    "there",
    [None, msgspec.structs.replace(USER, metadata=Meta(name="user", namespace="team", uid="v"))],
    ids=["it is gone", "another has its name"],
)
async def test_a_reservation_is_not_made_again_for_a_pod_that_only_the_mirror_has(
    there: Sharer | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Found by a history: other pods had got the GPU by then.
    monkeypatch.setattr(healing, "_AGAIN_S", 0.0)
    reservations: Any = Reservations()
    mirror, looks, has_ended = [USER], 0, asyncio.Event()

    def sharers() -> list[Sharer]:
        nonlocal looks
        looks += 1
        if looks == 4:
            mirror.clear()
            has_ended.set()
        return mirror

    events: Any = None
    gone: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    healer = asyncio.create_task(Healer(stored(there), reservations, sharers, gone, events).run())
    await asyncio.wait_for(has_ended.wait(), 60)
    healer.cancel()
    await asyncio.gather(healer, return_exceptions=True)

    assert reservations.made == 0


def stored(pod: Sharer | None) -> Any:
    """Return a client of an API server that has `pod`, or no pod."""

    class Stored:
        async def get(self, *_: object) -> Sharer:
            if pod is None:
                raise NotFoundError(404, "NotFound", "there is no such pod")
            return pod

    return Stored()
