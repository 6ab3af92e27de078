"""A history in words: what was to happen, who wrote what, and which promise broke."""

from collections.abc import Iterator
from typing import Any, Final

from tests.histories.apiserver.store import Change
from tests.histories.history import Played
from tests.histories.plan import EPOCH_S

_MOST_LINES: Final = 200
_SILENT: Final = ("leases", "events")


def story(played: Played) -> str:
    """Return the history for people; the last writes, if there are many."""
    writes = [each for each in played.writes if each.kind.plural not in _SILENT]
    left_out = max(0, len(writes) - _MOST_LINES)
    lines = [str(played.plan), ""]
    if left_out:
        lines.append(f"({left_out} earlier writes are left out)")
    lines += sorted([*_told(writes[left_out:]), *played.log])
    lines += ["", played.problem or "every promise was kept"]
    return "\n".join(lines)


def _told(writes: list[Change]) -> Iterator[str]:
    for change in writes:
        what = f"{change.writer.verb} {change.writer.subresource}".strip()
        at_s = change.at_s - EPOCH_S
        yield (
            f"{at_s:9.3f} {change.writer.caller}: {what} {change.kind.plural} {change.key[1]}"
            f"{_seen(change.version.object)}"
        )


def _seen(value: dict[str, Any]) -> str:
    """Describe what matters of an object: its node, phase and end."""
    status, meta = value.get("status") or {}, value["metadata"]
    parts = [
        f"on {value.get('spec', {}).get('nodeName')}"
        if value.get("spec", {}).get("nodeName")
        else "",
        str(status.get("phase") or status.get("state") or ""),
        "going" if meta.get("deletionTimestamp") else "",
    ]
    text = ", ".join(part for part in parts if part)
    return f" ({text})" if text else ""
