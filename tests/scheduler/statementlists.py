"""Strategies for committed Statements that wait to be written."""

from collections.abc import Sequence

from hypothesis import strategies as st

from bindery.scheduler.commit.backlog import Parts
from tests.scheduler.drafted import draft

NAMESPACES = "xyz"


@st.composite
def statement_lists(
    draw: st.DrawFn, most: int = 30, sizes: Sequence[int] = (1, 10, 200, 400)
) -> list[Parts]:
    """Draw Statements in the order of their commits; each may build on an earlier one.

    `sizes`: how many pods a Statement may have.
    """
    found: list[Parts] = []
    for index in range(draw(st.integers(0, most))):
        namespace = draw(st.sampled_from(NAMESPACES))
        earlier = [parts[0] for parts in found if parts[0].namespace == namespace]
        after = draw(st.none() | st.sampled_from(earlier)) if earlier else None
        count = draw(st.sampled_from([1, 1, 1, 3]))
        pods = max(draw(st.sampled_from(sizes)) // count, 1)
        found.append(
            tuple(
                draft(
                    f"s{index}",
                    namespace=namespace,
                    part=part,
                    parts=count,
                    pods=pods,
                    after=after.spec.id if after is not None else None,
                    token=7,
                )
                for part in range(count)
            )
        )
    return found
