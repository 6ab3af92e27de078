"""Plans the workloads that have changed, and has their PodGroups written.

Runs while this process leads. Changes of a workload are collected for a moment; one that takes long
to plan is planned less often. The invariant: a workload is planned again after every change, and no
workload is planned twice at once.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Final

import structlog

from bindery.grouper.metrics import PLAN_SECONDS, PLANS, WAITING
from bindery.grouper.named import is_named
from bindery.grouper.notices import Notice, NoticeBoard
from bindery.grouper.owners import Missing
from bindery.grouper.reporting import Reporter
from bindery.grouper.table.groups import GroupPlan
from bindery.grouper.table.loading import Table
from bindery.grouper.table.planning import plan
from bindery.grouper.view import View, Workload
from bindery.grouper.writer import Writer
from bindery.kube.errors import KubeError
from bindery.kube.http.outages import log_failure
from bindery.kube.http.retry import backoff_s

_log: Final = structlog.get_logger(__name__)

_REST: Final = 10.0
"""A workload rests for so many times the time that its last plan took."""
_MOST_ROUNDS: Final = 4
"""How often a plan may ask for further objects."""
_RETRY_BASE_S: Final = 0.5
_RETRY_CAP_S: Final = 60.0


class GroupingLoop:
    """Keeps the PodGroups of all workloads equal to their plans."""

    def __init__(
        self, view: View, table: Table, writer: Writer, board: NoticeBoard, debounce_s: float
    ) -> None:
        self._view = view
        self._table = table
        self._writer = writer
        self._reporter = Reporter(writer.client)
        self._board = board
        self._debounce_s = debounce_s
        self._due: dict[str, float] = {}
        """Root -> time of its next plan, by the loop's clock."""
        self._busy: set[str] = set()
        self._rests_s: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._free = asyncio.Event()
        """Set when a workload that was being planned no longer is."""

    async def run(self) -> None:
        """Plan all workloads, and each again when it changes, until cancelled."""
        await self._view.wait_filled()
        self._view.take_changed()
        self._due = dict.fromkeys(self._view.all_workloads(), 0.0)
        async with asyncio.TaskGroup() as tasks:
            while True:
                for root in self._take_due():
                    self._busy.add(root)
                    tasks.create_task(self._settle(root))
                await self._sleep()

    def _take_due(self) -> list[str]:
        """Note what has changed; take out and return the workloads to be planned now."""
        now = asyncio.get_running_loop().time()
        for root in self._view.take_changed():
            rest_s = max(self._debounce_s, self._rests_s.get(root, 0.0))
            self._due[root] = min(self._due.get(root, math.inf), now + rest_s)
        due = [root for root, at in self._due.items() if at <= now and root not in self._busy]
        for root in due:
            del self._due[root]
        WAITING.set(len(self._due))
        return due

    async def _sleep(self) -> None:
        """Wait until something has changed or is due."""
        waiting = [at for root, at in self._due.items() if root not in self._busy]
        pause_s = max(0.0, min(waiting) - asyncio.get_running_loop().time()) if waiting else None
        events = [asyncio.create_task(each.wait()) for each in (self._view.changed, self._free)]
        try:
            await asyncio.wait(events, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in events:
                each.cancel()
        self._free.clear()

    async def _settle(self, root: str) -> None:
        """Plan one workload and have it written; try again later if that fails."""
        try:
            await self._plan_and_write(root)
        except Exception as error:
            # Also a defect: it must not stop the other workloads.
            PLANS.labels("failed").inc()
            failures = self._failures[root] = self._failures.get(root, 0) + 1
            pause_s = backoff_s(failures - 1, _RETRY_BASE_S, _RETRY_CAP_S, 0.5)
            self._due.setdefault(root, asyncio.get_running_loop().time() + pause_s)
            if isinstance(error, KubeError):
                log_failure(_log, "not written", error, workload=root, retry_in_s=pause_s)
            else:
                _log.exception("a workload was not planned", workload=root)
        else:
            self._failures.pop(root, None)
        finally:
            self._busy.discard(root)
            self._free.set()

    async def _plan_and_write(self, root: str) -> None:
        if not self._view.is_there(root):
            self._rests_s.pop(root, None)
            self._board.clear(root)
            left = await self._view.leftovers(root)
            await self._writer.settle((), left, lambda group: bool(group.status.queue))
            return
        if is_named(root):
            await self._settle_named(root)
            return
        notices: list[Notice] = []
        for workload in self._view.workloads(root):
            now_s = asyncio.get_running_loop().time
            began_s = now_s()
            planned = self._plan(root, workload)
            took_s = now_s() - began_s
            PLAN_SECONDS.observe(took_s)
            self._rests_s[root] = took_s * _REST
            notices += _notices(planned)
            stored = self._view.groups.of_owners(workload.uids)
            notices += await self._writer.settle(
                planned.groups,
                [each for each in stored if each.metadata.namespace == workload.namespace],
                lambda group: group.metadata.uid in workload.bound_under,  # noqa: B023  # it is awaited in this round
            )
            PLANS.labels("done").inc()
        self._board.post(root, notices)

    async def _settle_named(self, root: str) -> None:
        """Plan a gang that pods name themselves, have it written, and report to what they name."""
        planned = self._view.plan_named(root)
        notices = _notices(planned.plan)
        if planned.pods:  # else the PodGroup stays as it is, until its owner goes or pods come
            notices += await self._writer.settle(
                planned.plan.groups,
                self._view.groups.of_owners(planned.uids),
                lambda group: group.metadata.uid in planned.bound_under,
            )
        await self._reporter.report(planned.report, self._view.groups.of_owners(planned.uids))
        PLANS.labels("done").inc()
        self._board.post(root, notices)

    def _plan(self, root: str, workload: Workload) -> GroupPlan:
        """Plan, with the further objects that the plan asks for."""
        owners: dict[str, Mapping[str, Any]] = dict(workload.owners)
        planned = plan(owners, workload.pods, self._table, workload.surroundings)
        for _ in range(_MOST_ROUNDS):
            found = [self._view.find_named(each, root) for each in planned.wanted if not each.uid]
            more = [each for each in found if not isinstance(each, Missing)]
            fresh = {each["metadata"]["uid"]: each for each in more}
            if fresh.keys() <= owners.keys():
                break
            owners |= fresh
            planned = plan(owners, workload.pods, self._table, workload.surroundings)
        return planned


def _notices(planned: GroupPlan) -> list[Notice]:
    return [
        Notice(each.object, each.reason, each.message, each.is_warning) for each in planned.problems
    ]
