"""Every series that a component exports is documented."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r'"(bindery_[a-z_]+)"')


def test_the_docs_name_every_series() -> None:
    documented = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    exported = {
        name
        for path in (ROOT / "bindery").rglob("*.py")
        if "prometheus_client" in path.read_text()
        for name in NAME.findall(path.read_text())
    }

    assert exported
    assert [name for name in sorted(exported) if name not in documented] == []
