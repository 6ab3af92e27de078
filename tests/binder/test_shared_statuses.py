"""The times and the number of status writes for Statements that share a request."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from bindery.binder.api_server.shared_status import GATHER_S
from bindery.binder.outcome.ports import RequestChangedError, RequestGoneError
from bindery.kube.errors import KubeError
from bindery.kube.objects.bindrequests import CommittedStatement
from tests.binder.binderworld import NAMESPACE, World, share, statement
from tests.binder.fakebinder import Door, Script, Trouble
from tests.binder.quicktime import play

NOW = "2026-01-01T00:00:00.000Z"
SUCCEEDED = {"phase": "Succeeded", "reason": "Bound", "completionTime": NOW}
FAILED = {"phase": "Failed", "reason": "PodGone", "completionTime": NOW}
RETRIED = {"phase": "Pending", "reason": "PluginFailed", "failedAttempts": 1}
WAITING = {"phase": "Pending", "reason": "Preparing", "message": "it waits"}


@dataclass
class Scene:
    """A request with the Statements a, b and c, and what is written to it, by time."""

    script: Script = field(default_factory=Script)
    needed: set[str] = field(default_factory=set)
    writes: list[tuple[float, dict[str, str]]] = field(default_factory=list)
    """When a write took effect, and the phases after it."""

    def __post_init__(self) -> None:
        self.world = World()
        share(self.world, *(statement(self.world, name, 2) for name in "abc"))
        self.world.watch = self._record
        self.door = Door(self.world, self.script, lambda _, name: name in self.needed)
        self.statuses = self.door.shared
        self.note()

    def note(self) -> None:
        """Show the request as it is now."""
        stored = self.world.requests[NAMESPACE, "shared"]
        self.statuses.note(stored, stored.each())

    def _record(self, _: object) -> None:
        at_s = asyncio.get_running_loop().time()
        self.writes.append((round(at_s, 3), self.phases()))

    def phases(self) -> dict[str, str]:
        statuses = self.world.requests[NAMESPACE, "shared"].status.statements
        return {each.id: each.phase for each in statuses}

    def request(self, name: str) -> CommittedStatement:
        each = self.world.requests[NAMESPACE, "shared"].each()
        return next(request for request in each if request.key.statement == name)

    def write(self, name: str, status: Mapping[str, object]) -> asyncio.Task[CommittedStatement]:
        return asyncio.create_task(self.statuses.write(self.request(name), status))


def run(scene: Scene, main: Callable[[], Awaitable[Any]]) -> None:
    async def go() -> None:
        await main()
        assert not scene.statuses._waiting

    play(go())


def test_a_failure_is_written_at_once() -> None:
    scene = Scene()

    async def main() -> None:
        written = await scene.write("b", FAILED)
        assert written.status.phase == "Failed"

    run(scene, main)
    assert scene.writes == [(0.0, {"b": "Failed"})]


def test_an_attempt_to_be_retried_is_written_at_once() -> None:
    scene = Scene()
    run(scene, lambda: scene.write("b", RETRIED))
    assert scene.writes == [(0.0, {"b": "Pending"})]


def test_successes_are_written_together_when_all_have_ended() -> None:
    scene = Scene()

    async def main() -> None:
        first, second = scene.write("a", SUCCEEDED), scene.write("b", SUCCEEDED)
        await asyncio.sleep(0.4)
        third = scene.write("c", SUCCEEDED)
        names = [each.key.statement for each in await asyncio.gather(first, second, third)]
        assert names == ["a", "b", "c"]

    run(scene, main)
    assert scene.writes == [(0.4, dict.fromkeys("abc", "Succeeded"))]
    assert len(scene.statuses) == 0


def test_successes_wait_a_second_for_a_running_neighbour() -> None:
    scene = Scene()

    async def main() -> None:
        first = scene.write("a", SUCCEEDED)
        await asyncio.sleep(0.7)
        await asyncio.gather(first, scene.write("b", SUCCEEDED))
        await asyncio.sleep(5)
        await scene.write("c", SUCCEEDED)

    run(scene, main)
    ab = {"a": "Succeeded", "b": "Succeeded"}
    assert scene.writes == [(GATHER_S, ab), (GATHER_S + 5, ab | {"c": "Succeeded"})]


def test_a_failure_is_written_together_with_waiting_successes() -> None:
    scene = Scene()

    async def main() -> None:
        first = scene.write("a", SUCCEEDED)
        await asyncio.sleep(0.3)
        await asyncio.gather(first, scene.write("b", FAILED))

    run(scene, main)
    assert scene.writes == [(0.3, {"a": "Succeeded", "b": "Failed"})]


def test_a_success_with_a_dependent_statement_is_written_at_once() -> None:
    scene = Scene(needed={"a"})
    run(scene, lambda: scene.write("a", SUCCEEDED))
    assert scene.writes == [(0.0, {"a": "Succeeded"})]


def test_a_waiting_success_is_written_when_a_dependent_statement_arrives() -> None:
    scene = Scene()

    async def main() -> None:
        first = scene.write("a", SUCCEEDED)
        await asyncio.sleep(0.3)
        scene.needed.add("a")
        scene.statuses.hurry(NAMESPACE, "a")
        await first

    run(scene, main)
    assert scene.writes == [(0.3, {"a": "Succeeded"})]


@pytest.mark.parametrize(
    "trouble", [Trouble.ERROR, Trouble.CONFLICT, Trouble.LOST_BEFORE, Trouble.LOST_AFTER]
)
def test_a_failed_write_is_repeated_for_all_statements(trouble: Trouble) -> None:
    scene = Scene(Script({0: trouble, 2: trouble}))

    async def main() -> None:
        await asyncio.gather(*(scene.write(name, SUCCEEDED) for name in "abc"))

    run(scene, main)
    assert scene.phases() == dict.fromkeys("abc", "Succeeded")


def test_a_status_written_by_another_process_is_kept() -> None:
    scene = Scene()

    async def main() -> None:
        other = Door(scene.world, Script(), lambda *_: False)
        await other.shared.write(scene.request("c"), FAILED)
        await scene.write("a", FAILED)

    run(scene, main)
    assert scene.phases() == {"a": "Failed", "c": "Failed"}


@pytest.mark.parametrize("at_s", [0.5, GATHER_S])
def test_a_run_cancelled_during_a_common_write_leaves_it_to_the_others(
    at_s: float,
) -> None:
    scene = Scene()

    async def main() -> None:
        first, second = scene.write("a", SUCCEEDED), scene.write("b", SUCCEEDED)
        scene.door.before_call = lambda _: first.cancel()
        await asyncio.sleep(at_s)
        if at_s < GATHER_S:
            first.cancel()
        assert (await second).status.phase == "Succeeded"
        assert first.cancelled()

    run(scene, main)
    assert scene.phases()["b"] == "Succeeded"


def test_a_run_cancelled_while_another_writes_is_not_written() -> None:
    scene = Scene()

    async def main() -> None:
        first = scene.write("a", SUCCEEDED)
        await asyncio.sleep(0.1)
        second = scene.write("b", SUCCEEDED)
        await asyncio.sleep(0.1)
        second.cancel()
        await first

    run(scene, main)
    assert scene.writes == [(GATHER_S, {"a": "Succeeded"})]


def delete(scene: Scene) -> None:
    del scene.world.requests[NAMESPACE, "shared"]


def create_again(scene: Scene) -> None:
    stored = scene.world.requests[NAMESPACE, "shared"]
    meta = msgspec.structs.replace(stored.metadata, uid="another")
    scene.world.store(msgspec.structs.replace(stored, metadata=meta))


def remove_statement(scene: Scene) -> None:
    statements = scene.world.requests[NAMESPACE, "shared"].spec.statements
    scene.world.respecify("shared", statements=statements[1:])


def change_statement(scene: Scene) -> None:
    statements = scene.world.requests[NAMESPACE, "shared"].spec.statements
    changed = msgspec.structs.replace(statements[0], priority=7)
    scene.world.respecify("shared", statements=[changed, *statements[1:]])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (delete, RequestGoneError),
        (create_again, RequestGoneError),
        (remove_statement, RequestGoneError),
        (change_statement, RequestChangedError),
        (lambda scene: scene.world.withdraw("shared", "a"), RequestChangedError),
    ],
)
@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("is_remembered", [False, True])
def test_an_outcome_is_not_written_to_a_changed_statement(
    change: Callable[[Scene], object], error: type[Exception], is_told: bool, is_remembered: bool
) -> None:
    scene = Scene()
    request = scene.request("a")
    if not is_remembered:
        scene.statuses.drop(request.metadata.uid)

    async def main() -> None:
        change(scene)
        if is_told and scene.world.requests:
            scene.note()
        with pytest.raises(error):
            await scene.statuses.write(request, SUCCEEDED)

    run(scene, main)
    assert "a" not in (scene.phases() if scene.world.requests else {})


def test_a_change_of_a_neighbour_does_not_prevent_the_write() -> None:
    scene = Scene()
    request = scene.request("b")

    async def main() -> None:
        change_statement(scene)
        scene.world.withdraw("shared", "c")
        written = await scene.statuses.write(request, FAILED)
        assert written.metadata.generation == 3

    run(scene, main)
    assert scene.phases() == {"b": "Failed"}


def test_an_outcome_is_written_if_the_watch_event_precedes_the_answer() -> None:
    scene = Scene()

    async def main() -> None:
        def withdraw(_: object) -> None:
            scene.world.watch = lambda stored: scene.statuses.note(stored, stored.each())
            scene.world.withdraw("shared", "a")

        scene.world.watch = withdraw  # when the write has taken effect, before its answer is there
        await scene.write("b", FAILED)
        await scene.write("a", FAILED)

    run(scene, main)
    assert scene.phases() == {"a": "Failed", "b": "Failed"}


def test_a_request_that_is_not_cached_is_read_until_the_read_succeeds() -> None:
    scene = Scene(Script({0: Trouble.ERROR, 1: Trouble.LOST_BEFORE}))
    scene.statuses.drop("br-shared")

    run(scene, lambda: scene.write("a", FAILED))

    assert scene.door.calls == ["read request"] * 3 + ["patch status"]


# ---- reasons to wait, which are written if they can be -------------------------------------------


def try_to_write(scene: Scene, name: str) -> asyncio.Task[CommittedStatement | None]:
    return asyncio.create_task(scene.statuses.try_to_write(scene.request(name), WAITING))


def test_a_wait_reason_never_replaces_an_outcome() -> None:
    scene = Scene(Script({0: Trouble.ERROR}))

    async def main() -> None:
        first = scene.write("a", FAILED)  # has to be tried twice
        await asyncio.sleep(0)
        said = try_to_write(scene, "b")
        await asyncio.sleep(0)
        outcome = scene.write("b", FAILED)
        await asyncio.gather(first, outcome)
        assert await said is None

    run(scene, main)
    assert scene.phases() == {"a": "Failed", "b": "Failed"}


def test_a_wait_reason_after_the_outcome_is_dropped() -> None:
    scene = Scene()
    before = scene.request("b")

    async def main() -> None:
        await scene.write("b", FAILED)
        assert await scene.statuses.try_to_write(before, WAITING) is None

    run(scene, main)
    assert scene.phases() == {"b": "Failed"}


def test_wait_reasons_that_arrive_during_a_write_are_written_together() -> None:
    scene = Scene()

    async def main() -> None:
        said = await asyncio.gather(*(try_to_write(scene, name) for name in "abc"))
        assert all(each is not None and each.status.reason == "Preparing" for each in said)

    run(scene, main)
    assert [set(phases) for _, phases in scene.writes] == [{"a"}, {"a", "b", "c"}]


def test_a_wait_reason_is_written_although_the_request_was_modified() -> None:
    scene = Scene()
    request = scene.request("a")

    async def main() -> None:
        scene.world.store(scene.world.requests[NAMESPACE, "shared"])
        assert await scene.statuses.try_to_write(request, WAITING) is not None

    run(scene, main)


def test_a_wait_reason_that_cannot_be_written_is_dropped() -> None:
    scene = Scene(Script(dict.fromkeys(range(10), Trouble.ERROR)))

    async def main() -> None:
        assert await try_to_write(scene, "a") is None
        scene.statuses.drop("br-shared")
        with pytest.raises(KubeError):
            await try_to_write(scene, "a")

    run(scene, main)
    assert scene.writes == []


# ---- memory --------------------------------------------------------------------------------------


def test_a_request_with_all_statements_ended_is_forgotten_despite_later_events() -> None:
    scene = Scene()
    states = []

    async def main() -> None:
        for name in "abc":
            await scene.write(name, FAILED)
            states.append(scene.world.requests[NAMESPACE, "shared"])
        assert len(scene.statuses) == 0
        for stored in states:
            scene.statuses.note(stored, stored.each())

    run(scene, main)
    assert len(scene.statuses) == 0


def test_a_request_deleted_while_it_is_read_is_forgotten() -> None:
    scene = Scene()
    scene.statuses.drop("br-shared")
    request = scene.request("a")

    async def main() -> None:
        scene.door.before_call = lambda call: delete(scene) if call == "patch status" else None
        with pytest.raises(RequestGoneError):
            await scene.statuses.write(request, FAILED)

    run(scene, main)
    assert len(scene.statuses) == 0
