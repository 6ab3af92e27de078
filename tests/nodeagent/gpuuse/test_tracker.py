"""Since when the GPUs of pods are unused, by readings of their use."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from bindery.nodeagent.devices.inventory import Use
from bindery.nodeagent.gpuuse.tracker import GpuUser, UseRules, UseTracker

START_S = 1_000_000.0
AFTER_S = 60.0
BOTH = frozenset({"a", "b"})
UNUSED = {"a": 0, "b": 0}


@dataclass
class Readings:
    """A tracker that is asked at its readings, and the annotations as it writes them."""

    tracker: UseTracker = field(default_factory=lambda: UseTracker(UseRules(1, AFTER_S)))
    written: dict[str, float] = field(default_factory=dict)
    changes: list[dict[str, float | None]] = field(default_factory=list)

    def look(self, at_s: float, use: Use, pods: Mapping[str, frozenset[str]] | None = None) -> None:
        pods = pods if pods is not None else {"pod": BOTH}
        now_s = START_S + at_s
        self.tracker.observe(now_s, use)
        users = []
        for uid, gpus in pods.items():
            since_s = self.written.get(uid)
            text = "" if since_s is None else str(since_s)
            users.append(GpuUser(uid, gpus, text, since_s))
        found = self.tracker.changes(now_s, users)
        self.changes.append(found)
        for uid, moment_s in found.items():
            if moment_s is None:
                del self.written[uid]
            else:
                self.written[uid] = moment_s

    def restart(self) -> None:
        self.tracker = UseTracker(UseRules(1, AFTER_S))

    @property
    def since(self) -> float | None:
        """The written time of the pod, from the start."""
        found = self.written.get("pod")
        return None if found is None else found - START_S


def test_the_time_is_that_of_the_last_use_of_any_gpu_and_is_written_once() -> None:
    readings = Readings()
    readings.look(0, {"a": 50, "b": 3})
    readings.look(10, {"a": 0, "b": 3})
    for at_s in range(20, 200, 10):
        readings.look(at_s, UNUSED)

    assert readings.since == 10
    assert [each for each in readings.changes if each] == [{"pod": START_S + 10}]


def test_a_short_pause_writes_nothing() -> None:
    readings = Readings()
    for at_s in range(0, 300, 10):
        readings.look(at_s, UNUSED if at_s % 50 else {"a": 90, "b": 0})

    assert not any(readings.changes)


def test_use_removes_the_time_and_it_begins_again_at_its_end() -> None:
    readings = Readings()
    readings.look(0, UNUSED)
    readings.look(100, UNUSED)
    assert readings.since == 0

    readings.look(110, {"a": 1, "b": 0})
    assert readings.since is None
    readings.look(120, UNUSED)
    readings.look(180, UNUSED)

    assert readings.since == 110


def test_a_mirror_that_still_has_the_removed_time_does_not_bring_it_back() -> None:
    readings = Readings()
    readings.look(0, UNUSED)
    readings.look(100, UNUSED)
    old = dict(readings.written)
    readings.look(110, {"a": 9, "b": 0})

    readings.written = dict(old)  # the removal has not arrived
    readings.look(120, UNUSED)

    assert readings.since is None


def test_a_time_that_was_removed_or_changed_is_restored() -> None:
    readings = Readings()
    readings.look(0, UNUSED)
    readings.look(100, UNUSED)
    for other in ({}, {"pod": START_S + 55}, {"pod": START_S - 999}):
        readings.written = dict(other)
        readings.look(110, UNUSED)
        assert readings.since == 0


def test_after_a_restart_the_time_goes_on() -> None:
    readings = Readings(written={"pod": START_S - 500})

    readings.look(0, UNUSED)
    readings.look(10, UNUSED)
    assert readings.since == -500
    assert not any(readings.changes)

    readings.written.clear()
    readings.look(20, UNUSED)
    assert readings.since == -500


def test_after_a_restart_use_removes_the_time_of_before() -> None:
    readings = Readings(written={"pod": START_S - 500})

    readings.look(0, {"a": 7, "b": 0})

    assert readings.since is None


def test_the_written_time_is_not_before_the_last_use() -> None:
    readings = Readings()
    readings.look(0.7, {"a": 7, "b": 0})
    readings.look(61, UNUSED)

    assert readings.since == 1


def test_a_pod_that_is_found_to_have_another_gpu_is_judged_again() -> None:
    readings = Readings()
    readings.look(0, {"a": 0, "b": 9}, {"pod": frozenset("a")})
    readings.look(60, {"a": 0, "b": 9}, {"pod": frozenset("a")})
    assert readings.since == 0

    readings.look(70, UNUSED)
    assert readings.since is None
    readings.look(120, UNUSED)

    assert readings.since == 60


def test_without_a_time_the_first_reading_is_the_beginning() -> None:
    readings = Readings()
    for at_s in (0, 10, 50):
        readings.look(at_s, UNUSED)
        assert readings.since is None
    readings.look(60, UNUSED)

    assert readings.since == 0


def test_a_time_in_the_future_is_not_believed() -> None:
    readings = Readings(written={"pod": START_S + 3600})

    readings.look(0, UNUSED)

    assert readings.since is None


def test_a_pod_is_not_idle_longer_than_it_has_had_its_gpus() -> None:
    readings = Readings()
    readings.look(0, UNUSED, {})
    readings.look(500, UNUSED, {})

    readings.look(510, UNUSED)
    readings.look(570, UNUSED)

    assert readings.since == 510


def test_each_pod_of_a_shared_gpu_counts_as_using_it() -> None:
    pods = {"first": frozenset("a"), "second": frozenset("a"), "other": frozenset("b")}
    readings = Readings()
    for at_s in range(0, 100, 10):
        readings.look(at_s, {"a": 40, "b": 0}, pods)

    assert readings.written == {"other": START_S}


def test_unknown_use_ends_the_own_time_and_leaves_that_of_others() -> None:
    own = Readings()
    own.look(0, UNUSED)
    own.look(60, UNUSED)
    assert own.since == 0
    own.look(70, {"a": 0})
    assert own.since is None
    own.look(80, UNUSED)
    own.look(140, UNUSED)
    assert own.since == 80

    foreign = Readings(written={"pod": START_S - 5})
    foreign.look(0, {"a": None, "b": None})
    foreign.look(10, {"a": None, "b": 0})
    assert foreign.since == -5


def test_an_unreadable_time_is_replaced() -> None:
    tracker = UseTracker(UseRules(1, AFTER_S))
    user = GpuUser("pod", BOTH, "yesterday", None)

    tracker.observe(START_S, UNUSED)
    assert tracker.changes(START_S, [user]) == {"pod": None}
    tracker.observe(START_S + 60, UNUSED)
    assert tracker.changes(START_S + 60, [user]) == {"pod": START_S}


LOOKS = st.lists(
    st.tuples(
        st.floats(0.1, 50.0),
        st.dictionaries(st.sampled_from("ab"), st.sampled_from([0, 0, 0, 1, 70, None])),
        st.sampled_from(["", "", "", "restart", "removed"]),
    ),
    max_size=40,
)


@given(LOOKS)
def test_no_pod_is_ever_idle_while_used_and_the_time_never_goes_back(
    looks: list[tuple[float, dict[str, int | None], str]],
) -> None:
    readings = Readings()
    at_s, last_used_s, last_since_s = 0.0, -1.0, -1.0
    for pause_s, use, event in looks:
        at_s += pause_s
        if event == "restart":
            readings.restart()
        if event == "removed":
            readings.written.clear()
        readings.look(at_s, use)
        if any(use.values()):
            last_used_s = at_s
            assert readings.since is None
        if readings.since is not None:
            # Times from 1970 have fewer digits after the point.
            assert readings.since >= max(0, last_used_s - 1e-6, last_since_s)
            assert at_s - readings.since >= AFTER_S - 1e-6
            last_since_s = readings.since


@given(st.lists(st.floats(0.1, 30.0), min_size=1, max_size=40))
def test_gpus_that_stay_unused_are_written_once_and_restarts_do_not_change_the_time(
    pauses: list[float],
) -> None:
    readings, at_s = Readings(), 0.0
    readings.look(0, UNUSED)
    for pause_s in pauses:
        at_s += pause_s
        if readings.written:
            readings.restart()
        readings.look(at_s, UNUSED)

    assert sum(map(bool, readings.changes)) == (at_s >= AFTER_S)
    assert readings.since == (0 if at_s >= AFTER_S else None)
