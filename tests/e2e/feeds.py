"""The scheduler's watches, run by a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bindery.scheduler.cache.feed import Feed

_LISTED_S = 60.0


@asynccontextmanager
async def running(feed: Feed) -> AsyncIterator[Feed]:
    """Run `feed`, which has listed everything when the body begins."""
    feed.start()
    run = asyncio.create_task(feed.run())
    try:
        async with asyncio.timeout(_LISTED_S):
            await feed.synced()
        yield feed
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
