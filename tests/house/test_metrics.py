"""Every series that a component exports is documented."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r'"(bindery_[a-z_]+)"')


def test_the_docs_list_every_series() -> None:
    documented = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    exported = {
        name
        for path in (ROOT / "bindery").rglob("*.py")
        if "prometheus_client" in path.read_text()
        for name in NAME.findall(path.read_text())
    }

    assert exported
    assert [name for name in sorted(exported) if name not in documented] == []


def test_the_alerts_use_series_that_exist() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (rules,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    used = {
        name
        for group in yaml.safe_load(rules)["groups"]
        for rule in group["rules"]
        for name in re.findall(r"bindery_[a-z_]+", rule["expr"])
    }
    pages = [ROOT / "docs" / name for name in ("metrics.md", "binder.md")]
    documented = set(re.findall(r"bindery_[a-z_]+", "".join(map(Path.read_text, pages))))

    assert len(used) > 10
    assert used - documented == set()
