"""Reservations that are deleted while they are being recreated."""

import asyncio
from typing import Any

import pytest

from bindery.api import gpushare
from bindery.binder.plugins.gpusharing import handover
from bindery.binder.plugins.gpusharing.healing import Healer
from bindery.binder.plugins.gpusharing.objects import Sharer, SharerSpec
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
    client: Any = None
    healing = asyncio.create_task(Healer(client, reservations, lambda: [USER], gone, events).run())
    await asyncio.wait_for(reservations.is_made_again.wait(), 10)
    healing.cancel()
    await asyncio.gather(healing, return_exceptions=True)
