"""Clients that live at another time, or draw other numbers, than their machine."""

import random
import time
from collections.abc import Callable

from bindery.kube.client import Client
from bindery.kube.environment import Environment


class Drawn(random.Random):
    """Chance that always draws the same number in [0, 1)."""

    def __init__(self, drawn: float) -> None:
        super().__init__()
        self._drawn = drawn

    def random(self) -> float:
        return self._drawn


def elsewhere(
    client: Client,
    *,
    now_s: Callable[[], float] = time.time,
    chance: random.Random | None = None,
) -> Client:
    """Return a client of the same connections with another clock or other chance."""
    caller = client._caller
    return Client(
        caller.transport, caller.timeout_s, Environment(now_s, chance or client.environment.random)
    )
