"""The desk for questions that need a plan of their own: one at a time, each in a thread.

These are a pasted manifest, and what would help a waiting gang. A question goes on when the person
who asked does not wait for it any more; its answer is kept for a while.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final, Generic, TypeVar

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
from bindery.dashboard.kept import KeptEngine
from bindery.dashboard.pages.whatif import WhatifPage, answered
from bindery.dashboard.rights import Rights
from bindery.dashboard.seen import reduced
from bindery.dashboard.state import PLAN_EVERY_S, REST, ClusterReader, StateKeeper
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.watched import KubeObject, Node
from bindery.observability.interpreter import collected_after
from bindery.scheduler.insight.waiting import Explanation
from bindery.scheduler.model.jobs import JobKey

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

_MOST_WAITING: Final = 4
"""Maximum number of questions that wait for their turn."""
_KEPT: Final = 32
"""Number of answers of each kind that are kept."""
MOST_OBJECTS: Final = 5_000
"""Maximum number of objects and pods in one question."""
_NAME: Final = "manifest"


class Question(Generic[T]):
    """A question that is being answered, or has been. `clock`: that of the keeper."""

    def __init__(self, task: "asyncio.Task[T]", version: int, clock: Callable[[], float]) -> None:
        self._task, self._clock = task, clock
        self.version = version
        """The number of the newest picture when it was asked."""
        self._since_s = clock()
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[T]") -> None:
        self._since_s = self._clock()
        if not task.cancelled():
            task.exception()  # whoever still waits for the answer gets it

    @property
    def age_s(self) -> float:
        """Seconds since it was asked; once it is answered, since then."""
        return self._clock() - self._since_s

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer, or an error in place of it."""
        return self._task.done()

    @property
    def has_failed(self) -> bool:
        """Whether there is an error in place of an answer."""
        return self._task.done() and (self._task.cancelled() or self._task.exception() is not None)

    async def is_answered_within(self, seconds: float | None) -> bool:
        """Wait `seconds` for the answer, None: as long as it takes; return whether it is there."""
        await asyncio.wait({self._task}, timeout=seconds)
        return self._task.done()

    def answer(self) -> T:
        """Return the answer.

        Raises:
            BadInputError: the configuration cannot be used.
            KubeError: the cluster does not answer.
        """
        return self._task.result()


class PlanDesk:
    """Answers questions of people, one after another."""

    def __init__(self, keeper: StateKeeper, reader: ClusterReader) -> None:
        self._keeper = keeper
        self._reader = reader
        self._open = 0
        """Number of questions without an answer."""
        self._explained: OrderedDict[JobKey, Question[Explanation | None]] = OrderedDict()
        self._rehearsed: OrderedDict[str, tuple[Rights, Question[WhatifPage]]] = OrderedDict()

    async def explanation(self, key: JobKey) -> Question[Explanation | None]:
        """Ask why the gang `key` waits; the answer is None if it is not planned.

        Raises:
            NoAnswerError: others ask at the moment.
        """
        picture = await self._keeper.picture()
        known = self._explained.get(key)
        if known is None or self._is_old(known, picture.version):
            known = self._asked(self._explain(key), picture.version)
            _keep(self._explained, key, known)
        return known

    def ask(
        self, manifest: str, form: WhatifPage, rights: Rights
    ) -> tuple[str, Question[WhatifPage]]:
        """Ask what would happen if `manifest` were submitted now; return a name for the question.

        Raises:
            NoAnswerError: others ask at the moment.
        """
        question = self._asked(self._rehearse(manifest, form, rights), 0)
        name = secrets.token_urlsafe(12)
        _keep(self._rehearsed, name, (rights, question))
        return name, question

    def asked(self, name: str, rights: Rights) -> Question[WhatifPage] | None:
        """Return the question called `name` of a person with the same rights; None if not kept."""
        of, question = self._rehearsed.get(name, (None, None))
        return question if of == rights else None

    async def form(self, rights: Rights, namespace: str = "", manifest: str = "") -> WhatifPage:
        """Return the page with the empty form."""
        names = tuple(name for name in self._reader.namespaces() if rights.sees(name))
        chosen = namespace or ("default" if "default" in names or not names else names[0])
        return WhatifPage(names, chosen, manifest)

    def _asked(self, work: Coroutine[Any, Any, T], version: int) -> Question[T]:
        """Begin with `work`.

        Raises:
            NoAnswerError: too many questions wait for their turn.
        """
        if self._open > _MOST_WAITING:
            work.close()
            raise NoAnswerError("others ask at the moment; try again in a minute")
        self._open += 1
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return Question(task, version, lambda: self._keeper.now_s)

    def _ended(self, _: "asyncio.Task[Any]") -> None:
        self._open -= 1

    def _is_old(self, known: Question[Any], version: int) -> bool:
        """Return whether to ask again: there is a newer picture, and it is time for a plan."""
        if not known.is_answered or known.version == version:
            return known.has_failed
        rest_s = max(PLAN_EVERY_S, REST * self._keeper.took_s)
        return known.age_s > rest_s

    async def _explain(self, key: JobKey) -> Explanation | None:
        kept = self._reader.kept
        async with kept.turn:
            source = await self._reader.source()
            with kept.lent():  # at once: the engine has what `source` has
                return await asyncio.to_thread(kept.explanation, source, key)

    async def _rehearse(self, manifest: str, form: WhatifPage, rights: Rights) -> WhatifPage:
        """Return the page with what would happen if `manifest` were submitted now."""
        kept = self._reader.kept
        try:
            async with kept.turn:  # for the memory: each of two plays fills an engine
                source, rows = await self._reader.source(), await self._reader.grouper_rows()
                work = partial(_rehearsed, source, form.namespace, rows, rights, kept)
                found = await asyncio.to_thread(collected_after, work, manifest)
        except (FileError, NoAnswerError) as error:
            return replace(form, problem=reduced(str(error), rights))
        return answered(form, found.outcome, found.notes, rights)


def _keep(questions: "OrderedDict[K, V]", key: K, question: V) -> None:
    """Add a question, and drop the oldest ones if there are too many."""
    questions[key] = question
    questions.move_to_end(key)
    while len(questions) > _KEPT:
        questions.popitem(last=False)


def _rehearsed(
    source: Source,
    namespace: str,
    rows: GrouperRows,
    rights: Rights,
    kept: KeptEngine,
    manifest: str,
) -> RehearsalAnswer:
    """Plan `manifest` in memory, in place of `kept`.

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
    return rehearsed(source, submission, _NAME, free_memory=kept.drop)


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
