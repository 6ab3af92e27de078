"""Fetches past usage from Prometheus while a scheduler leads.

Created by `keeping.py`. As in KAI-Scheduler (v0.17, usagedb), the last fetched usage stays in use
until there is newer usage, however old it is; above the staleness limit with a warning. Invariant:
the usage in use is always one complete result.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

from bindery.api.usage import UsageConfiguration
from bindery.kube.lease import Leadership
from bindery.scheduler.usage.keeper import UsageProblems
from bindery.scheduler.usage.metrics import USAGE_ERRORS, USAGE_STALE, USAGE_UPDATED
from bindery.scheduler.usage.prometheus import PrometheusReader, UsageQueryError
from bindery.scheduler.usage.source import GivenUsage, decay_of

_CONNECTIONS: Final = 4


class PrometheusKeeper:
    """Fetches usage into `given` periodically. `clock` returns seconds since the epoch."""

    def __init__(
        self,
        given: GivenUsage,
        configuration: UsageConfiguration,
        problems: UsageProblems,
        clock: Callable[[], float],
    ) -> None:
        self._given = given
        self._configuration = configuration
        self._problems = problems
        self._clock = clock
        self._updated: float | None = None
        """Time of the last successful fetch."""

    def configure(self, configuration: UsageConfiguration) -> None:
        """Use `configuration` from the next fetch on."""
        self._configuration = configuration

    @asynccontextmanager
    async def kept(self, _leadership: Leadership) -> AsyncIterator[None]:
        """Fetch once before the first cycle, then periodically."""
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector) as session:
            await self.update(self._reader(session))
            fetching = asyncio.create_task(self._update_now_and_then(session))
            try:
                yield
            finally:
                fetching.cancel()
                await asyncio.gather(fetching, return_exceptions=True)

    async def update(self, reader: PrometheusReader) -> None:
        """Fetch usage; on failure keep the previous usage."""
        now = self._clock()
        try:
            fetched = await reader.fetch(now)
        except UsageQueryError as error:
            kept = "the previous values are used" if self._updated is not None else "none is used"
            problem = f"past usage could not be fetched, {kept}: {error}"
            self._problems.error("query", "UsageUnavailable", problem)
        else:
            self._given.parts, self._updated = fetched.usage, now
            USAGE_UPDATED.set(now)
            if fetched.unusable:
                USAGE_ERRORS.labels("sample").inc(fetched.unusable)
        self._check_age()

    def _reader(self, session: aiohttp.ClientSession) -> PrometheusReader:
        wanted = self._configuration
        return PrometheusReader(session, wanted.prometheus, decay_of(wanted))

    async def _update_now_and_then(self, session: aiohttp.ClientSession) -> None:
        while True:
            await asyncio.sleep(self._configuration.prometheus.fetch_seconds)
            await self.update(self._reader(session))

    def _check_age(self) -> None:
        prometheus = self._configuration.prometheus
        # Between two fetches, usage is always as old as the interval.
        limit_s = max(prometheus.staleness_seconds, prometheus.fetch_seconds)
        is_stale = self._updated is None or self._clock() - self._updated > limit_s
        USAGE_STALE.set(is_stale)
        if is_stale and self._updated is not None:
            self._problems.warning(
                "UsageStale", f"past usage in use is more than {limit_s:g} s old"
            )
