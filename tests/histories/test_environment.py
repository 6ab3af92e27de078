"""The product reads no clock and draws no chance of the machine in a history."""

import os
import random
import secrets
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.histories.drawing import draw
from tests.histories.history import play

MACHINE = (
    *(time.time, time.time_ns, time.monotonic, time.perf_counter, time.process_time),
    *(time.thread_time, time.sleep, random.random, os.urandom),
)
OURS = ("bindery", "random", "uuid")


def test_no_clock_and_no_chance_of_the_machine_is_read() -> None:
    read = {each for each in machine_reads(lambda: play(draw(3))) if each[0].startswith(OURS)}

    measure = {"bindery.scheduler.engine", "bindery.scheduler.plugins.registry"}
    assert read == {(module, "perf_counter") for module in measure}


def test_a_read_of_the_machine_is_seen() -> None:
    assert machine_reads(lambda: (time.monotonic(), random.random(), secrets.token_hex())) == {
        (__name__, "monotonic"),
        (__name__, "random"),
        ("random", "urandom"),
    }


def machine_reads(work: Callable[[], object]) -> set[tuple[str, str]]:
    """Return which modules call which function of `MACHINE` during `work`."""
    read = set()

    def see(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and any(called is each for each in MACHINE):
            read.add((frame.f_globals["__name__"], called.__name__))

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return read
