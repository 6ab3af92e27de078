"""The table of `nodecases` in docs/hollow-nodes.md: `python -m tests.e2e.realnode.nodetable`."""

from collections import Counter
from pathlib import Path

from tests.e2e.realnode.nodecases import ALONE, TOGETHER

_TESTS = Path(__file__).resolve().parents[2]
DOCUMENT = _TESTS.parent / "docs" / "hollow-nodes.md"
_BEGIN, _END = "<!-- cases -->\n", "<!-- end of cases -->\n"


def table() -> str:
    """Return the table: a line for each group."""
    lines = ["| Pods | Number | Equal | Differences on a hollow node |", "|---|---|---|---|"]
    sums = Counter[str]()
    for group, cases in (TOGETHER | ALONE).items():
        reasons = Counter(case.differs for case in cases.values() if case.differs)
        pods = sum(len(case.pods) for case in cases.values())
        equal = pods - reasons.total()
        sums.update(pods=pods, equal=equal)
        why = "; ".join(f"{reason} ({count})" for reason, count in reasons.items())
        lines.append(f"| {group} | {pods} | {equal} | {why} |")
    lines.append(f"| all | {sums['pods']} | {sums['equal']} | |")
    return "\n".join(lines) + "\n"


def written(text: str) -> str:
    """Return the document with the table in its place."""
    before, rest = text.split(_BEGIN)
    return before + _BEGIN + table() + _END + rest.split(_END)[1]


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text()))
