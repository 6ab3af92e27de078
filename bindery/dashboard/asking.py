"""The desk for questions that need a plan of their own: in a thread, one at a time.

These are a pasted manifest, and what would help a waiting gang.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from typing import Final

from bindery.answers.errors import BadInputError, NoAnswerError
from bindery.answers.grouperrows import GrouperRows
from bindery.answers.source import Source
from bindery.answers.submission import (
    RehearsalAnswer,
    Submitted,
    demand_namespaces,
    pool_of,
    rehearsed,
    submission_of,
)
from bindery.api.yamlfile import FileError, parse
from bindery.dashboard.pages.whatif import WhatifPage, answered
from bindery.dashboard.rights import Rights
from bindery.dashboard.seen import reduced
from bindery.dashboard.state import ClusterReader, StateKeeper
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.watched import KubeObject, Node
from bindery.observability.interpreter import collected_after
from bindery.scheduler.insight.waiting import Explanation, explain
from bindery.scheduler.model.jobs import JobKey

_MOST_WAITING: Final = 4
"""Maximum number of questions that wait for their turn."""
_KEPT: Final = 32
"""Number of explanations that are kept."""
MOST_OBJECTS: Final = 5_000
"""Maximum number of objects and pods in one question."""
_NAME: Final = "manifest"


class PlanDesk:
    """Answers questions of people, one after another."""

    def __init__(self, keeper: StateKeeper, reader: ClusterReader) -> None:
        self._keeper = keeper
        self._reader = reader
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0
        self._explained: OrderedDict[tuple[int, JobKey], Explanation | None] = OrderedDict()

    async def explanation(self, key: JobKey) -> Explanation | None:
        """Return why the gang `key` waits, of the newest picture; None if it is not planned.

        Raises:
            NoAnswerError: others ask at the moment.
        """
        picture, source = await self._keeper.whole()
        known = (picture.version, key)
        if known not in self._explained:
            async with self._place():
                self._explained[known] = await asyncio.to_thread(
                    collected_after, _explained, source, key
                )
            while len(self._explained) > _KEPT:
                self._explained.popitem(last=False)
        return self._explained[known]

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Hold the place of the one question that is planned, within the block.

        Raises:
            NoAnswerError: too many questions wait for it.
        """
        if self._waiting >= _MOST_WAITING:
            raise NoAnswerError("others ask at the moment; try again in a minute")
        self._waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1

    async def form(self, rights: Rights, namespace: str = "", manifest: str = "") -> WhatifPage:
        """Return the page with the empty form."""
        names = tuple(name for name in self._reader.namespaces() if rights.sees(name))
        chosen = namespace or ("default" if "default" in names or not names else names[0])
        return WhatifPage(names, chosen, manifest)

    async def answer(self, manifest: str, namespace: str, rights: Rights) -> WhatifPage:
        """Return the page with what would happen if `manifest` were submitted now."""
        form = await self.form(rights, namespace, manifest)
        try:
            async with self._place():
                _, source = await self._keeper.whole()
                rows = await self._reader.grouper_rows()
                found = await asyncio.to_thread(
                    collected_after, _rehearsed, source, manifest, form.namespace, rows, rights
                )
        except (FileError, NoAnswerError) as error:
            return replace(form, problem=reduced(str(error), rights))
        return answered(form, found.outcome, found.notes, rights)


def _explained(source: Source, key: JobKey) -> Explanation | None:
    return explain(source.world(), key)


def _rehearsed(
    source: Source, manifest: str, namespace: str, rows: GrouperRows, rights: Rights
) -> RehearsalAnswer:
    """Plan `manifest` in memory.

    Raises:
        FileError: a document cannot be used.
        BadInputError: the person may not submit it, or there is nothing to schedule in it.
    """
    documents = parse(manifest.replace("\r\n", "\n"), _NAME)
    for found in (namespace, *chain.from_iterable(_namespaces(each.data) for each in documents)):
        _demand_namespace(found, rights)  # before anything about it is looked up
    submission = submission_of(source, Submitted(_NAME, documents, namespace), rows)
    pods = [each.pod for each in submission.arrivals]
    _demand_rights([*submission.objects, *pods], rights)
    if source.planner is not None:  # a file need not name every namespace
        demand_namespaces(source, submission, _NAME)
    pool = pool_of(source, submission)
    if pool is not None and pool != source.configuration.node_pool:
        source = source.in_pool(pool)
    return rehearsed(source, submission, _NAME)


def _demand_rights(items: Iterable[KubeObject], rights: Rights) -> None:
    """Refuse objects where the person may not look.

    Raises:
        BadInputError: there is such an object, or too many.
    """
    found = list(items)
    if len(found) > MOST_OBJECTS:
        raise BadInputError(f"{_NAME}: it has more than {MOST_OBJECTS:,} objects and pods")
    for item in found:
        namespace = item.metadata.namespace
        if namespace:
            _demand_namespace(namespace, rights)
        elif not _may_submit(item, rights):
            raise BadInputError(f"{_NAME}: your rights do not include objects of this kind")


def _demand_namespace(namespace: str, rights: Rights) -> None:
    if not rights.sees(namespace):
        raise BadInputError(f"{_NAME}: you may not list PodGroups and pods in {namespace}")


def _namespaces(data: object) -> Iterator[str]:
    """Yield the namespaces that a document names anywhere."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key == "namespace" and isinstance(value, str):
                yield value
            else:
                yield from _namespaces(value)
    elif isinstance(data, list):
        for each in data:
            yield from _namespaces(each)


def _may_submit(item: KubeObject, rights: Rights) -> bool:
    """Return whether the answer for an object of the whole cluster shows nothing new."""
    if isinstance(item, Queue):
        return rights.queues
    if isinstance(item, Node):
        return rights.nodes
    return rights.namespaces is None
