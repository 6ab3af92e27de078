"""With any failure of the binder, each Statement of a shared request is bound whole or not."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.bindrequest import Phase
from bindery.binder.plugins.interface import PluginError
from bindery.kube.objects.bindrequests import CommittedStatement, StatementSpec
from tests.binder.binderworld import World, gang, share, statement
from tests.binder.fakebinder import Binder, Script, Trouble, carry_through
from tests.binder.quicktime import play
from tests.sizes import examples

MOST_TROUBLES = 5
PATIENT = MOST_TROUBLES + 1
"""A backoff limit that no script exhausts: each trouble costs an attempt at the most."""
LAGS_S = [0.0, 0.4, 3.0]


@dataclass
class Scene:
    """Random requests, with random trouble to come."""

    world: World
    script: Script
    plugins: int
    lag_s: float
    refuses: dict[str, PluginError] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    """Pod UID -> for how long a plugin waits before it prepares the pod."""
    faulty: set[str] = field(default_factory=set)
    """Statements with pods that are lost, or refused."""
    withdrawals: dict[int, str] = field(default_factory=dict)
    """Call -> the Statement that is withdrawn at it."""
    losses: dict[int, str] = field(default_factory=dict)
    """Call -> the Statement whose first pod is deleted at it, unless that is bound."""
    robbed: set[str] = field(default_factory=set)
    """Statements that have lost a pod in the middle, and may be bound in part."""
    calls: int = 0
    on_write: Callable[[int], object] = lambda _write: None
    """Gets the number of each write of a status before it."""
    writes: int = 0

    def happen(self, call: str) -> None:
        self.calls += 1
        if call == "patch status":
            self.writes += 1
            self.on_write(self.writes)
        name = self.withdrawals.pop(self.calls, None)
        for stored in list(self.world.requests.values()) if name else []:
            if name in [each.id for each in stored.spec.statements]:
                self.world.withdraw(stored.metadata.name, str(name))
        name = self.losses.pop(self.calls, None)
        pod = self.world.pods.get(f"{name}-0")
        if name is not None and pod is not None and not pod.node:
            del self.world.pods[f"{name}-0"]
            self.robbed.add(name)

    def play(self) -> None:
        async def main() -> None:
            binders = await carry_through(
                self.world,
                self.script,
                plugins=self.plugins,
                refuses=self.refuses,
                slow=self.slow,
                before_call=self.happen,
                lag_s=self.lag_s,
            )
            check_nothing_is_remembered(binders[-1])

        play(main())


def pods(request: CommittedStatement) -> set[str]:
    return {pod.pod_uid for pod in request.spec.pods}


def ours(world: World) -> set[str]:
    return {uid for uid, node in world.bound().items() if node != "elsewhere"}


def by_id(world: World) -> dict[str, list[CommittedStatement]]:
    """Return the parts of each Statement."""
    found: dict[str, list[CommittedStatement]] = {}
    for request in world.statements():
        found.setdefault(request.key.statement, []).append(request)
    return found


def check_nothing_is_remembered(binder: Binder) -> None:
    """What a binder keeps of requests that have ended, or are gone, would grow for ever."""
    manager = binder.manager
    assert manager.run_count == 0
    assert not binder.open_statements()
    assert len(binder.door.shared) == 0
    assert not binder.door.shared._waiting
    for stored in binder.world.requests.values():
        binder.intake.gone(stored)
    assert not manager.entries
    assert not manager._claims._holders
    assert not binder.intake._statements


def check_the_end(world: World, plugins: int) -> None:
    """Check the end: status and preparations fit the bindings, and each pod is bound once."""
    bound = ours(world)
    for request in world.statements():
        mine, status = pods(request), request.status
        assert status.phase in (Phase.SUCCEEDED, Phase.FAILED)
        assert set(status.bound_pods) == bound & mine
        assert {pod.pod_uid for pod in status.unbound_pods} == mine - bound
        assert status.completion_time
    for stored in world.requests.values():
        outcomes = [each.status.phase for each in stored.each()]
        expected = Phase.FAILED if Phase.FAILED in outcomes else Phase.SUCCEEDED
        assert stored.status.phase == expected
        count = sum(len(pods(each) & bound) for each in stored.each())
        assert world.bound_counts[stored.metadata.name] == count
    assert world.prepared == {(f"claims-{n}", uid) for n in range(plugins) for uid in bound}
    assert world.finished == world.prepared
    bindings = [entry for entry in world.log if entry[0] == "bind"]
    assert len(bindings) == len({uid for _, uid, _ in bindings})


def check_each_statement(scene: Scene) -> None:
    """Each is whole or not at all, in order, and untouched by what is wrong with others."""
    bound, statements = ours(scene.world), by_id(scene.world)
    withdrawn = {each.key.statement for each in scene.world.statements() if each.is_withdrawn}
    whole: set[str] = set()
    for name, parts in statements.items():  # prerequisites come first
        mine = set().union(*map(pods, parts))
        minimum = parts[0].spec.min_bound
        needed = len(mine) if minimum is None else min(minimum, len(mine))
        if name not in scene.robbed:
            assert len(bound & mine) not in range(1, needed), f"{name} is bound in part"
        phases = {part.status.phase for part in parts}
        if minimum is None:
            assert len(phases) == 1
        after = parts[0].spec.after
        may_begin = after is None or after in whole
        assert may_begin or not bound & mine, f"{name} is bound without {after}"
        if Phase.SUCCEEDED in phases:
            whole.add(name)
        if may_begin and name not in scene.faulty | scene.robbed | withdrawn:
            assert bound >= mine, f"{name} has not been bound, though nothing is wrong with it"
        if name in scene.faulty and minimum is None:
            assert not bound & mine


@st.composite
def scenes(draw: Any) -> Scene:
    world = World()
    world.keeps_time = True
    names: list[str] = []
    scene = Scene(
        world,
        draw(
            st.builds(
                Script,
                st.dictionaries(
                    st.integers(0, 90), st.sampled_from(list(Trouble)), max_size=MOST_TROUBLES
                ),
            )
        ),
        draw(st.integers(0, 2)),
        draw(st.sampled_from(LAGS_S)),
    )
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["shared", "shared", "split", "old"]))
        if kind == "shared":
            chosen = [
                draw_statement(draw, scene, f"s{number}{letter}", names)
                for letter in "abc"[: draw(st.integers(1, 3))]
            ]
            share(world, *chosen, name=f"request-{number}", backoff_limit=PATIENT)
        elif kind == "split":
            whole = draw_statement(draw, scene, f"p{number}", names)
            count = draw(st.integers(1, len(whole.pods)))
            for part in range(count):
                piece = msgspec.structs.replace(
                    whole,
                    pods=whole.pods[part::count],
                    part=part,
                    parts=count,
                )
                share(world, piece, name=f"request-{number}-{part}", backoff_limit=PATIENT)
        else:
            names.append(f"o{number}")
            gang(world, 2, name=f"o{number}", backoff_limit=PATIENT)
    stored = [each.id for request in world.requests.values() for each in request.spec.statements]
    if stored:
        scene.withdrawals = draw(
            st.dictionaries(st.integers(1, 60), st.sampled_from(sorted(set(stored))), max_size=2)
        )
        scene.losses = draw(
            st.dictionaries(st.integers(1, 60), st.sampled_from(sorted(set(stored))), max_size=2)
        )
    return scene


def draw_statement(draw: Any, scene: Scene, name: str, names: list[str]) -> StatementSpec:
    """Draw a Statement that may build on one of `names`; lose or refuse one of its pods, or not."""
    size = draw(st.integers(1, 3))
    found = statement(
        scene.world,
        name,
        size,
        min_bound=draw(st.sampled_from([None, None, 0, 1, 2])),
        after=draw(st.sampled_from([None, None, *names])),
    )
    names.append(name)
    if draw(st.booleans()):
        scene.slow[f"uid-{name}-0"] = draw(st.sampled_from([0.5, 1.5, 30.0]))
    trouble = draw(
        st.sampled_from([None, None, None, "gone", "replaced", "elsewhere", "refused", "not now"])
    )
    if trouble is not None:
        scene.faulty.add(name)
        spoil(scene, f"{name}-{draw(st.integers(0, size - 1))}", trouble)
    return found


def spoil(scene: Scene, pod: str, trouble: str) -> None:
    world = scene.world
    if trouble == "gone":
        del world.pods[pod]
    elif trouble == "replaced":
        world.pods[pod].uid = "another"
    elif trouble == "elsewhere":
        world.pods[pod].node = "elsewhere"
    else:
        permanent = trouble == "refused"
        scene.refuses[f"uid-{pod}"] = PluginError("no", permanent=permanent)


@settings(max_examples=examples(70), deadline=None)
@given(scenes())
def test_each_statement_is_bound_whole_or_not_at_all_independently(scene: Scene) -> None:
    if not scene.plugins:
        scene.refuses.clear()  # nobody is there to refuse
        scene.faulty = {name for name in scene.faulty if _has_lost(scene.world, name)}

    scene.play()

    check_each_statement(scene)
    check_the_end(scene.world, scene.plugins)


def _has_lost(world: World, name: str) -> bool:
    for request in by_id(world)[name]:
        for pod in request.spec.pods:
            found = world.pods.get(pod.pod_name)
            if found is None or found.uid != pod.pod_uid or found.node == "elsewhere":
                return True
    return False


def three_gangs(world: World) -> dict[str, PluginError]:
    """Add a request with Statements of different kinds; one of them cannot be bound."""
    world.keeps_time = True
    share(
        world,
        statement(world, "gang", 2),
        statement(world, "extra", 1, after="gang", min_bound=0),
        statement(world, "bad", 2),
        backoff_limit=1,
    )
    return {"uid-bad-1": PluginError("no")}


@pytest.mark.parametrize("lag_s", LAGS_S)
@pytest.mark.parametrize("trouble", list(Trouble))
def test_one_failure_at_any_call_does_not_affect_neighbours(trouble: Trouble, lag_s: float) -> None:
    """Exhaustive: the failure occurs at each call in turn, until there are no more calls."""
    for when in range(1000):
        world, script = World(), Script({when: trouble})
        refuses = three_gangs(world)

        play(carry_through(world, script, plugins=1, refuses=refuses, lag_s=lag_s))

        assert ours(world) == {"uid-gang-0", "uid-gang-1", "uid-extra-0"}, f"at call {when}"
        check_the_end(world, 1)
        if script.calls <= when:
            return
    raise AssertionError("the calls never end")


@pytest.mark.parametrize("name", ["gang", "extra", "bad"])
@pytest.mark.parametrize("lag_s", LAGS_S)
def test_a_withdrawal_at_any_call_ends_only_its_statement(name: str, lag_s: float) -> None:
    for when in range(1, 1000):
        world = World()
        refuses = three_gangs(world)
        scene = Scene(world, Script(), 1, lag_s, refuses, faulty={"bad"}, withdrawals={when: name})

        scene.play()

        check_each_statement(scene)
        check_the_end(world, 1)
        if scene.withdrawals:
            return
    raise AssertionError("the calls never end")


@pytest.mark.parametrize("later", [1, 2, 3, 4])
def test_a_gang_stays_whole_if_pods_cannot_be_read_after_a_death_and_a_withdrawal(
    later: int,
) -> None:
    """The next binder must not take a pod that it could not read for one that is not bound."""
    for when in range(1, 1000):
        world = World()
        world.keeps_time = True
        share(world, statement(world, "gang", 2))
        script = Script({when: Trouble.DEATH_BEFORE, when + later: Trouble.ERROR})
        scene = Scene(world, script, 1, 0.0, withdrawals={when: "gang"})

        scene.play()

        check_each_statement(scene)
        check_the_end(world, 1)
        if scene.withdrawals:
            return
    raise AssertionError("the calls never end")


async def lose_the_lease(
    world: World, refuses: dict[str, PluginError], when: int, calls: list[str]
) -> None:
    """Stop a binder at a call, and let the next one begin; `calls` gets those of the first."""
    binder, lost = Binder(world, plugins=1, refuses=refuses), asyncio.Event()
    binder.door.calls = calls
    binder.door.before_call = lambda _: lost.set() if len(calls) == when else None
    binder.watch()
    binder.list_requests()
    ends = [asyncio.create_task(binder.settle()), asyncio.create_task(lost.wait())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    await binder.bury()
    await carry_through(world, plugins=1, refuses=refuses)


def test_the_next_binder_continues_after_the_lease_is_lost_at_any_call() -> None:
    for when in range(1, 1000):
        world, calls = World(), list[str]()
        refuses = three_gangs(world)

        play(lose_the_lease(world, refuses, when, calls))

        assert ours(world) == {"uid-gang-0", "uid-gang-1", "uid-extra-0"}, f"at call {when}"
        check_the_end(world, 1)
        if len(calls) < when:
            return
    raise AssertionError("the calls never end")


def split_gang(trouble: tuple[int, Trouble] | None = None) -> Scene:
    """Return a scene with one gang of three pods in three requests, with at most one trouble."""
    world = World()
    world.keeps_time = True
    whole = statement(world, "p", 3)
    for part in range(3):
        piece = msgspec.structs.replace(whole, pods=whole.pods[part : part + 1], part=part, parts=3)
        share(world, piece, name=f"request-{part}", backoff_limit=PATIENT)
    return Scene(world, Script(dict([trouble] if trouble else [])), 0, lag_s=0.0)


@pytest.mark.parametrize("at", range(1, 4))
@pytest.mark.parametrize("dies_at", [None, 3])
@pytest.mark.parametrize("withdrawn", [(0, 1, 2), (0,), (1,), (2,)])
def test_every_part_has_an_outcome_after_a_withdrawal_between_writes_of_parts(
    at: int, dies_at: int | None, withdrawn: tuple[int, ...]
) -> None:
    """The first parts have their outcome then, and the Runs of the others must know it.

    A scheduler that dies has withdrawn only some of them.
    """
    scene = split_gang(None if dies_at is None else (dies_at, Trouble.DEATH_BEFORE))

    def withdraw(write: int) -> None:
        for part in withdrawn if write == at else ():
            scene.world.withdraw(f"request-{part}", "p")

    scene.on_write = withdraw
    scene.play()

    check_the_end(scene.world, 0)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("at", range(1, 4))
def test_parts_get_an_outcome_after_another_binder_has_ended_one_that_is_withdrawn(
    part: int, at: int
) -> None:
    """The part with an outcome starts no new Run, and the others cannot end without one."""
    scene = split_gang(trouble=(0, Trouble.ERROR))  # the first attempt writes that it failed

    def end_and_withdraw(write: int) -> None:
        if write == at:
            completion = {"unboundPods": [], "completionTime": "2026-01-01T00:00:00Z"}
            scene.world.end(f"request-{part}", phase=Phase.FAILED, **completion)
            scene.world.withdraw(f"request-{part}", "p")

    scene.on_write = end_and_withdraw
    scene.play()

    assert not ours(scene.world)
    assert {each.status.phase for each in scene.world.statements()} == {Phase.FAILED}
