"""A gang is bound whole or not at all, with any failure of the binder at any call."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.bindrequest import Phase
from bindery.binder.plugins.interface import PluginError
from tests.binder.binderworld import World, gang
from tests.binder.fakebinder import Script, Trouble, carry_through
from tests.binder.quicktime import play
from tests.sizes import examples

SIZES = st.integers(1, 4)
SCRIPTS = st.builds(
    Script, st.dictionaries(st.integers(0, 50), st.sampled_from(list(Trouble)), max_size=6)
)
PLUGINS = st.integers(0, 2)


@st.composite
def scenes(draw: Any, *, min_bound: Any) -> tuple[World, Script, int, dict[str, Any]]:
    """A Statement in one or more parts, some of its pods or nodes lost, troubles to come."""
    world = World()
    size = draw(SIZES)
    gang(
        world,
        size,
        parts=draw(st.integers(1, size)),
        min_bound=draw(min_bound),
        backoff_limit=draw(st.integers(0, 3)),
    )
    for number in draw(st.sets(st.integers(0, size - 1), max_size=1)):
        lost = draw(st.sampled_from(["pod gone", "pod replaced", "bound elsewhere", "node gone"]))
        pod = world.pods[f"gang-{number}"]
        if lost == "pod gone":
            del world.pods[f"gang-{number}"]
        elif lost == "pod replaced":
            pod.uid = "another"
        elif lost == "bound elsewhere":
            pod.node = "elsewhere"
        else:
            world.nodes.remove(f"node-{number}")
    refuses = {
        f"uid-gang-{number}": PluginError("no", permanent=draw(st.booleans()))
        for number in draw(st.sets(st.integers(0, size - 1), max_size=1))
    }
    return world, draw(SCRIPTS), draw(PLUGINS), refuses


def bound_by_us(world: World) -> set[str]:
    return {uid for uid, node in world.bound().items() if node != "elsewhere"}


def check_the_end(world: World, plugins: int) -> None:
    """Check the end: status and preparations fit the bindings, and each pod is bound once."""
    ours = bound_by_us(world)
    for request in world.statements():
        mine = {pod.pod_uid for pod in request.spec.pods}
        assert request.status.phase in (Phase.SUCCEEDED, Phase.FAILED)
        assert set(request.status.bound_pods) == ours & mine
        assert {pod.pod_uid for pod in request.status.unbound_pods} == mine - ours
        assert request.status.completion_time
    assert world.prepared == {(f"claims-{n}", uid) for n in range(plugins) for uid in ours}
    bindings = [entry for entry in world.log if entry[0] == "bind"]
    assert len(bindings) == len({uid for _, uid, _ in bindings})


@pytest.mark.parametrize("trouble", list(Trouble))
@pytest.mark.parametrize("parts", [1, 2])
def test_one_trouble_at_any_call_does_not_keep_a_gang_from_being_bound_whole(
    trouble: Trouble, parts: int
) -> None:
    """Exhaustive: the trouble meets each call in turn, until it comes too late to meet any."""
    for when in range(1000):
        world, script = World(), Script({when: trouble})
        gang(world, 3, parts=parts)

        play(carry_through(world, script))

        assert len(bound_by_us(world)) == 3, f"{trouble} at call {when}"
        assert world.finished == world.prepared, f"{trouble} at call {when}"
        check_the_end(world, 2)
        if script.calls <= when:
            return
    raise AssertionError("the calls never end")


@pytest.mark.parametrize("trouble", list(Trouble))
@pytest.mark.parametrize("second", [Trouble.ERROR, Trouble.DEATH_AFTER])
def test_a_second_trouble_while_the_first_is_looked_into_does_no_more_harm(
    trouble: Trouble, second: Trouble
) -> None:
    """Exhaustive for pairs at most four calls apart."""
    for when in range(1000):
        for later in range(1, 5):
            world, script = World(), Script({when: trouble, when + later: second})
            gang(world, 2)

            play(carry_through(world, script, plugins=1))

            assert len(bound_by_us(world)) == 2, f"{trouble} at call {when}, {second} {later} later"
            check_the_end(world, 1)
        if script.calls <= when:
            return
    raise AssertionError("the calls never end")


@pytest.mark.parametrize("trouble", list(Trouble))
def test_one_trouble_at_any_call_leaves_nothing_of_a_gang_that_cannot_be_bound(
    trouble: Trouble,
) -> None:
    for when in range(1000):
        world, script = World(), Script({when: trouble})
        gang(world, 3, backoff_limit=1)
        refuses = {"uid-gang-2": PluginError("no")}

        play(carry_through(world, script, refuses=refuses))

        assert not bound_by_us(world), f"{trouble} at call {when}"
        check_the_end(world, 2)
        if script.calls <= when:
            return
    raise AssertionError("the calls never end")


@settings(max_examples=examples(70), deadline=None)
@given(scenes(min_bound=st.none()))
def test_a_gang_is_bound_whole_or_not_at_all(scene: Any) -> None:
    world, script, plugins, refuses = scene
    everybody = {pod.pod_uid for r in world.statements() for pod in r.spec.pods}

    play(carry_through(world, script, plugins=plugins, refuses=refuses))

    ours = bound_by_us(world)
    assert ours in (set(), everybody)
    phases = {request.status.phase for request in world.statements()}
    assert phases == {Phase.SUCCEEDED if ours else Phase.FAILED}
    check_the_end(world, plugins)


@settings(max_examples=examples(35), deadline=None)
@given(scenes(min_bound=st.integers(1, 4)))
def test_at_least_min_bound_pods_are_bound_or_none(scene: Any) -> None:
    world, script, plugins, refuses = scene
    minimum = min(r.spec.min_bound or 0 for r in world.statements())
    size = sum(len(r.spec.pods) for r in world.statements())

    play(carry_through(world, script, plugins=plugins, refuses=refuses))

    assert len(bound_by_us(world)) not in range(1, min(minimum, size))
    check_the_end(world, plugins)


@settings(max_examples=examples(35), deadline=None)
@given(scenes(min_bound=st.just(0)))
def test_independent_pods_are_bound_unless_something_is_wrong_with_them(scene: Any) -> None:
    world, script, plugins, refuses = scene

    play(carry_through(world, script, plugins=plugins, refuses=refuses))

    ours = bound_by_us(world)
    for request in world.statements():
        assert (request.status.phase == Phase.SUCCEEDED) == bool(ours)
    check_the_end(world, plugins)


@settings(max_examples=examples(52), deadline=None)
@given(st.data())
def test_what_happens_to_pods_in_the_middle_harms_only_them(data: Any) -> None:
    """Pods go, are replaced or bound elsewhere at any call: nothing leaks, nothing lies."""
    world = World()
    size = data.draw(SIZES)
    gang(world, size, backoff_limit=2, min_bound=data.draw(st.sampled_from([None, 0])))
    when, whom = data.draw(st.integers(0, 30)), f"gang-{data.draw(st.integers(0, size - 1))}"
    what = data.draw(st.sampled_from(["gone", "replaced", "ending", "elsewhere"]))
    calls = 0

    def happen(_call: str) -> None:
        nonlocal calls
        calls += 1
        pod = world.pods.get(whom)
        if calls != when or pod is None or pod.node:
            return
        if what == "gone":
            del world.pods[whom]
        elif what == "replaced":
            pod.uid = "another"
        elif what == "ending":
            pod.ending = True
        else:
            pod.node = "elsewhere"

    play(carry_through(world, data.draw(SCRIPTS), plugins=1, before_call=happen))

    check_the_end(world, 1)
