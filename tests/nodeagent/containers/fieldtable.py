"""The table of fields in docs/node-agent.md: `python -m tests.nodeagent.containers.fieldtable`."""

from pathlib import Path

from bindery.nodeagent.containers.fields import RULES, Fate

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "node-agent.md"
_BEGIN, _END = "<!-- fields -->\n", "<!-- end of fields -->\n"


def table() -> str:
    """Return the table: a line for each group of fields with one fate and one note."""
    groups: dict[tuple[Fate, str, str], list[str]] = {}
    for rule in RULES:
        values = ", ".join(str(value).lower() for value in rule.values or ())
        groups.setdefault((rule.fate, rule.note, values), []).append(rule.path)
    lines = ["| Fate | Fields | Note |", "|---|---|---|"]
    for fate in Fate:
        for (one, note, values), paths in groups.items():
            if one is fate:
                shown = ", ".join(f"`{path}`" for path in sorted(paths))
                only = f" (only {values})" if values else ""
                lines.append(f"| {fate} | {shown}{only} | {note} |")
    return "\n".join(lines) + "\n"


def written(text: str) -> str:
    """Return the document with the table in its place."""
    before, rest = text.split(_BEGIN)
    return before + _BEGIN + table() + _END + rest.split(_END)[1]


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text()))
