"""An event loop whose time passes at once when nothing happens.

What waits for minutes is tested in milliseconds, and a task that hangs is found at once.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

_MOST_S = 100_000.0
"""How long `play` goes on, in the time of its event loop."""


class _Idle(selectors.DefaultSelector):
    """Counts the seconds in which an event loop has nothing to do, instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.waited_s += timeout or 0.0
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time passes at once when nothing happens."""

    def __init__(self) -> None:
        self._idle = _Idle()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.waited_s


def play(main: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine in a new event loop, without the noise that dead binders make."""

    async def quiet() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        async with asyncio.timeout(_MOST_S):
            await main

    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(quiet())
