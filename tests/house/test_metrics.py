"""Every series that a component exports is on the page of series, and alerts use no others."""

import re
from pathlib import Path

import yaml

from tests.house import metricreference

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r'"(bindery_[a-z_]+)"')


def test_the_page_of_series_has_every_series() -> None:
    listed = metricreference.PAGE.read_text(encoding="utf-8")
    exported = {
        name
        for path in (ROOT / "bindery").rglob("*.py")
        if "prometheus_client" in path.read_text()
        for name in NAME.findall(path.read_text())
    }

    assert len(exported) > 50
    assert [name for name in sorted(exported) if name not in listed] == []


def test_the_alerts_use_series_that_exist() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (rules,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    used = {
        name
        for group in yaml.safe_load(rules)["groups"]
        for rule in group["rules"]
        for name in re.findall(r"bindery_[a-z_]+", rule["expr"])
    }
    page = metricreference.PAGE.read_text(encoding="utf-8")
    documented = set(re.findall(r"bindery_[a-z_]+", page))

    assert len(used) > 10
    assert used - documented == set()
