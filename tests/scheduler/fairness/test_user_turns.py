"""The order between the users of a queue, as pure logic."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.scheduler.fairness.users import UserTurns
from bindery.scheduler.ledgers.users import user_of

USERS = ("ann", "bob", "")
users = st.sampled_from(USERS)
parts = st.integers(0, 4).map(lambda quarters: quarters / 4)


@dataclass
class Holdings:
    """What users hold, as a test sets it."""

    parts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    log: list[str] = field(default_factory=list)

    def part(self, user: str) -> float:
        return self.parts[user]

    def changes(self) -> Sequence[str]:
        return self.log

    def set(self, user: str, part: float) -> None:
        self.parts[user] = part
        self.log.append(user)


def served(holdings: Holdings, jobs: Sequence[tuple[str, int, float]]) -> list[str]:
    """Serve `jobs` (user, priority, size), older first; return the names in order: ann0, bob1."""
    turns: UserTurns[tuple[str, str, float]] = UserTurns(holdings)
    for age, (user, priority, size) in enumerate(jobs):
        turns.add(user, (-priority,), (age,), (f"{user}{age}", user, size))
    order = []
    while turns:
        name, user, size = turns.pop()
        order.append(name)
        if size:
            holdings.set(user, holdings.parts[user] + size)
    return order


@pytest.mark.parametrize(
    ("held", "jobs", "order"),
    [
        pytest.param(
            {},
            [("ann", 0, 1), ("ann", 0, 1), ("ann", 0, 1), ("bob", 0, 1), ("bob", 0, 1)],
            ["ann0", "bob3", "ann1", "bob4", "ann2"],
            id="equal jobs alternate, and the older is first if users hold the same",
        ),
        pytest.param(
            {"ann": 2},
            [("ann", 0, 1), ("bob", 0, 1), ("bob", 0, 1), ("bob", 0, 1)],
            ["bob1", "bob2", "ann0", "bob3"],
            id="the user who holds less is served first",
        ),
        pytest.param(
            {},
            [("ann", 0, 3), ("ann", 0, 3), ("bob", 0, 1), ("bob", 0, 1), ("bob", 0, 1)],
            ["ann0", "bob2", "bob3", "bob4", "ann1"],
            id="the size counts, not the number of jobs",
        ),
        pytest.param(
            {"ann": 9},
            [("bob", 0, 1), ("ann", 5, 1)],
            ["ann1", "bob0"],
            id="priority precedes users",
        ),
        pytest.param(
            {},
            [("ann", 0, 0), ("bob", 0, 0), ("ann", 0, 0)],
            ["ann0", "bob1", "ann2"],
            id="jobs without a place are in the order of age",
        ),
        pytest.param(
            {"": 1}, [("", 0, 1), ("", 0, 1), ("ann", 0, 1)], ["ann2", "0", "1"], id="no user"
        ),
    ],
)
def test_users_take_turns(
    held: dict[str, float], jobs: list[tuple[str, int, float]], order: list[str]
) -> None:
    holdings = Holdings()
    for user, part in held.items():
        holdings.set(user, part)

    assert served(holdings, jobs) == order


def test_users_with_100_jobs_and_2_jobs_both_have_two_of_the_first_four() -> None:
    jobs = [("ann", 0, 1.0)] * 100 + [("bob", 0, 1.0)] * 2

    order = served(Holdings(), jobs)

    assert Counter(name.rstrip("0123456789") for name in order[:4]) == {"ann": 2, "bob": 2}
    assert len(order) == 102


@given(
    st.lists(st.tuples(users, st.integers(0, 1)), max_size=12),
    st.lists(st.one_of(st.none(), st.tuples(users, parts)), max_size=30),
)
def test_the_first_job_is_always_the_least_by_rank_then_part_then_age(
    jobs: list[tuple[str, int]], steps: list[tuple[str, float] | None]
) -> None:
    """Parts may change between any two items; each step takes an item or sets a part."""
    holdings = Holdings()
    turns: UserTurns[int] = UserTurns(holdings)
    left = dict(enumerate(jobs))
    for age, (user, rank) in left.items():
        turns.add(user, (rank,), (age,), age)
    for step in [*steps, *[None] * len(jobs)]:
        if step is not None:
            holdings.set(*step)
        elif left:
            best = min(left, key=lambda age: (left[age][1], holdings.parts[left[age][0]], age))
            assert turns.first() == best
            assert turns.pop() == best
            user, rank = left.pop(best)
            if best % 3 == 0:  # it is put back once, with a worse rank
                left[best + 100] = (user, rank + 1)
                turns.add(user, (rank + 1,), (best + 100,), best + 100)
    assert bool(turns) == bool(left)


@given(st.lists(st.tuples(users, st.integers(1, 3)), min_size=1, max_size=40))
def test_no_user_is_served_while_another_waiting_user_holds_less(
    jobs: list[tuple[str, int]],
) -> None:
    holdings = Holdings()
    turns: UserTurns[tuple[str, int]] = UserTurns(holdings)
    for age, (user, size) in enumerate(jobs):
        turns.add(user, (), (age,), (user, size))
    waiting = Counter(user for user, _ in jobs)
    while turns:
        user, size = turns.pop()
        assert all(holdings.parts[user] <= holdings.parts[other] for other in +waiting)
        waiting[user] -= 1
        holdings.set(user, holdings.parts[user] + size)


@pytest.mark.parametrize(
    ("of_group", "of_pods", "user"),
    [
        ({"u": "ann"}, [{"u": "bob"}], "ann"),
        ({}, [{}, {"u": "cid"}, {"u": "bob"}], "bob"),
        ({"u": ""}, [{"u": "bob"}], "bob"),
        ({"other": "ann"}, [{}], ""),
        ({}, [], ""),
    ],
)
def test_the_user_is_read_from_the_pod_group_or_else_from_its_pods(
    of_group: dict[str, str], of_pods: list[dict[str, str]], user: str
) -> None:
    assert user_of("u", of_group, of_pods) == user
