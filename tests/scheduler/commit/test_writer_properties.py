"""With any failures of the writer's calls, no Statement is lost and none is written twice."""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.configuration import BindRequestConfiguration
from bindery.kube.client import Client
from bindery.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    KubeError,
    NamespaceTerminatingError,
    NotFoundError,
    OutcomeUnknownError,
    ServerError,
    UnreachableError,
)
from bindery.kube.lease import Leadership
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement, StatementKey
from bindery.scheduler.commit.backlog import MOST_PODS, Parts
from bindery.scheduler.commit.requests import BindRequestDraft
from bindery.scheduler.commit.writer import CONCURRENT_CREATIONS, RequestWriter
from tests.binder.quicktime import play
from tests.scheduler.drafted import draft
from tests.scheduler.statementlists import statement_lists
from tests.sizes import examples


class Trouble(Enum):
    """What befalls one call."""

    REFUSED = "refused"
    ENDING = "the namespace is being deleted"
    LOST_BEFORE = "lost before it took effect"
    LOST_AFTER = "done, and the answer lost"
    UNREACHABLE = "not sent"


@dataclass
class FakeApi:
    """Stores BindRequests; some of its calls meet trouble."""

    troubles: Mapping[int, Trouble]
    bad: frozenset[str]
    """Ids of Statements that are refused in any request."""
    delays: list[float]
    calls: int = 0
    stored: dict[tuple[str, str], BindRequest] = field(default_factory=dict)
    created: list[BindRequest] = field(default_factory=list)
    """In order."""

    def within(self, _is_valid: Callable[[], bool]) -> "FakeApi":
        return self  # its terms do not end

    async def create(
        self, _resource: object, body: Mapping[str, Any], namespace: str
    ) -> BindRequest:
        trouble = await self._call()
        item = msgspec.convert(body, BindRequest)
        meta = msgspec.structs.replace(item.metadata, uid=f"uid-{self.calls}")
        item = msgspec.structs.replace(item, metadata=meta)
        key = namespace, item.metadata.name
        if trouble in (None, Trouble.LOST_AFTER):
            if key in self.stored:
                raise AlreadyExistsError(409, "AlreadyExists", "it exists")
            if any(each.key.statement in self.bad for each in item.each()):
                raise InvalidError(422, "Invalid", "bad")
            self.stored[key] = item
            self.created.append(item)
        self._raise(trouble)
        return item

    async def get(self, _resource: object, name: str, namespace: str) -> BindRequest:
        self._raise(await self._call())
        if (namespace, name) not in self.stored:
            raise NotFoundError(404, "NotFound", "no such request")
        return self.stored[namespace, name]

    async def list(self, _resource: object, *, namespace: str) -> list[BindRequest]:
        await self._call()
        return [item for (of, _), item in self.stored.items() if of == namespace]

    async def delete(self, _resource: object, name: str, namespace: str, *, uid: str) -> None:
        await self._call()
        found = self.stored.get((namespace, name))
        if found is None:
            raise NotFoundError(404, "NotFound", "no such request")
        if found.metadata.uid != uid:
            raise ConflictError(409, "Conflict", "another UID")
        del self.stored[namespace, name]

    async def _call(self) -> Trouble | None:
        trouble = self.troubles.get(self.calls)
        delay_s = self.delays[self.calls % len(self.delays)]
        self.calls += 1
        await asyncio.sleep(delay_s)
        return trouble

    def _raise(self, trouble: Trouble | None) -> None:
        errors: dict[Trouble, KubeError] = {
            Trouble.REFUSED: ServerError(500, "InternalError", "trouble"),
            Trouble.ENDING: NamespaceTerminatingError(403, "Forbidden", "it is being deleted"),
            Trouble.LOST_BEFORE: OutcomeUnknownError("lost"),
            Trouble.LOST_AFTER: OutcomeUnknownError("lost"),
            Trouble.UNREACHABLE: UnreachableError("unreachable"),
        }
        if trouble is not None:
            raise errors[trouble]


@dataclass(frozen=True)
class Story:
    """What happens in one example."""

    committed: list[Parts]
    troubles: Mapping[int, Trouble]
    bad: frozenset[str]
    delays: list[float]
    pauses: list[float]
    """Between two commits."""
    ends_after_s: float | None
    """When the Lease is lost."""
    stops_after_s: float | None
    configuration: BindRequestConfiguration


@st.composite
def stories(draw: st.DrawFn) -> Story:
    committed = draw(statement_lists(most=40, sizes=(1, 1, 1, 1, 1, 300)))
    ids = [parts[0].spec.id for parts in committed]
    return Story(
        committed,
        draw(st.dictionaries(st.integers(0, 60), st.sampled_from(Trouble), max_size=12)),
        frozenset(draw(st.lists(st.sampled_from(ids), max_size=3)) if ids else ()),
        draw(st.lists(st.sampled_from([0.0, 0.01, 1.0, 9.0]), min_size=1, max_size=5)),
        draw(st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.5]), min_size=1, max_size=5)),
        draw(st.none() | st.sampled_from([0.0, 0.5, 5.0])),
        draw(st.none() | st.sampled_from([0.0, 0.5, 5.0])),
        BindRequestConfiguration(
            max_statements=draw(st.sampled_from([1, 3, 50])),
        ),
    )


@given(stories())
@settings(max_examples=examples(35), deadline=None)
def test_every_statement_is_written_once_or_refused_or_known_to_be_missing(story: Story) -> None:
    api = FakeApi(story.troubles, story.bad, story.delays)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        writer = RequestWriter(cast("Client", api), lambda: None, lambda: story.configuration)
        term = Leadership(7, loop.time, math.inf)
        writer.begin(term)
        if story.ends_after_s is not None:
            loop.call_later(story.ends_after_s, term.end)
        for index, parts in enumerate(story.committed):
            for part in parts:
                writer.submit(part)
            pause_s = story.pauses[index % len(story.pauses)]
            if pause_s:
                await asyncio.sleep(pause_s)
        if story.stops_after_s is not None:
            await asyncio.sleep(story.stops_after_s)
            await writer.stop(grace_s=1.0)
        await writer.drain()
        await check(writer, api, story)
        await check_next_term(writer, api)

    play(main())


@pytest.mark.parametrize("is_successor", [False, True])
def test_of_a_refused_gang_only_the_own_parts_are_deleted(*, is_successor: bool) -> None:
    api = FakeApi({}, frozenset(), [0.0, 0.0, 0.0, 1.0])
    parts = [draft("gang", part=part, parts=2) for part in (0, 1)]
    keys = [(part.namespace, part.name) for part in parts]

    async def main() -> None:
        for part in parts:  # by another scheduler
            await api.create(None, BindRequestDraft((part,)).to_object(), part.namespace)
            found = api.stored[part.namespace, part.name]
            spec = msgspec.structs.replace(found.spec, fencing_token=8)
            api.stored[part.namespace, part.name] = msgspec.structs.replace(found, spec=spec)
        first = api.stored.pop(keys[0])
        writer = RequestWriter(cast("Client", api), lambda: None)
        for part in parts:
            writer.submit(part)
        await asyncio.sleep(0.5)  # the first part exists, and the second is on its way
        assert keys[0] in api.stored
        if is_successor:
            api.stored[keys[0]] = first
        await writer.drain()

    play(main())
    assert (keys[0] in api.stored) is is_successor


def test_of_a_refused_gang_a_part_without_an_answer_is_deleted_too() -> None:
    troubles = {1: Trouble.LOST_AFTER, 2: Trouble.UNREACHABLE, 3: Trouble.REFUSED}
    api = FakeApi(troubles, frozenset(), [0.0])

    async def main() -> None:
        writer = RequestWriter(cast("Client", api), lambda: None)
        for part in (0, 1, 2):
            writer.submit(draft("gang", part=part, parts=3))
        await writer.drain()
        assert len(writer.refused) == 3

    play(main())
    assert [each.metadata.name for each in api.created] == ["gang-request-p0", "gang-request-p1"]
    assert api.stored == {}


async def check(writer: RequestWriter, api: FakeApi, story: Story) -> None:
    keys = {part.key for parts in story.committed for part in parts}
    stored = [each for item in api.stored.values() for each in item.each()]
    carried = {each.key for each in stored}
    refused = {each.draft.key for each in writer.refused}
    assert len(carried) == len(stored), "one is carried twice"
    assert carried <= keys
    assert not carried & refused, "one is refused although it exists"
    assert not {each.key.statement for each in stored} & story.bad
    writer.look_up(keys - carried - refused)
    await writer.drain()
    assert carried | refused | set(writer.missing) == keys, "nobody knows what became of one"
    if not (story.troubles or story.bad) and story.ends_after_s is story.stops_after_s is None:
        assert carried == keys
    check_order(api, refused)
    check_sizes(api, story.configuration)


async def check_next_term(writer: RequestWriter, api: FakeApi) -> None:
    """Check that the next term has all places for creations, and writes."""
    api.troubles, api.created = {}, []
    writer.begin(Leadership.without_election())
    further = [draft(f"next-{index}", namespace="next") for index in range(CONCURRENT_CREATIONS)]
    for each in further:
        writer.submit(each)
    await writer.drain()
    assert [len(item.each()) for item in api.created] == [1] * CONCURRENT_CREATIONS


def check_order(api: FakeApi, refused: set[StatementKey]) -> None:
    """Check that nothing was written before its prerequisite, or although that is refused."""
    seen: dict[tuple[str, str], int] = {}
    for index, item in enumerate(api.created):
        for each in item.each():
            seen.setdefault((each.metadata.namespace, each.key.statement), index)
    given_up = {(key.namespace, key.statement) for key in refused}
    for index, item in enumerate(api.created):
        for each in item.each():
            after = each.spec.after
            if after is None:
                continue
            before = each.metadata.namespace, after
            assert before not in given_up
            assert before not in seen or seen[before] <= index


def check_sizes(api: FakeApi, configuration: BindRequestConfiguration) -> None:
    for item in api.created:
        statements: tuple[CommittedStatement, ...] = item.each()
        assert len(statements) <= configuration.max_statements
        if len(statements) > 1:
            assert sum(len(each.spec.pods) for each in statements) <= MOST_PODS
