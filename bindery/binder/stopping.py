"""The stop signal, and pauses that end with it.

Created by `process`; `run.run` pauses with it between attempts.
"""

import asyncio
import signal


class Stop:
    """The stop of the process; once set, it stays set."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def is_set(self) -> bool:
        """Whether the process is to stop."""
        return self._event.is_set()

    def set(self) -> None:
        """Request the stop."""
        self._event.set()

    def claim_signals(self) -> None:
        """Let SIGTERM and SIGINT request this stop; kopf replaces the handlers at its start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._event.set)

    async def wait(self) -> None:
        """Wait until the process is to stop."""
        await self._event.wait()

    async def pause(self, seconds: float) -> bool:
        """Wait for `seconds`; return False as soon as the process is to stop."""
        if seconds > 0 and not self._event.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._event.wait()
            except TimeoutError:
                return True
        return not self._event.is_set()
