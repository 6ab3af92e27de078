"""Every Job in the documentation follows the recipe of docs/evictions.md and survives a reclaim."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
RULE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FILES = [
    *sorted((ROOT / "examples").rglob("*.yaml")),
    *sorted((ROOT / "docs").rglob("*.yaml")),
]


def jobs(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the specs of all Jobs in `document`: its own, and those of Jobs that it makes."""
    if isinstance(document, list):
        for item in document:
            yield from jobs(item)
    elif isinstance(document, dict):
        match document.get("kind"), document.get("apiVersion", "").partition("/")[0]:
            case "Job", "batch":
                yield document["spec"]
            case "CronJob", "batch":
                yield document["spec"]["jobTemplate"]["spec"]
            case "JobSet", _:
                yield from (each["template"]["spec"] for each in document["spec"]["replicatedJobs"])
        for value in document.values():
            yield from jobs(value)


def texts() -> Iterator[tuple[str, str]]:
    for path in FILES:
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in PAGES:
        blocks = path.read_text(encoding="utf-8").split("```yaml\n")[1:]
        for number, block in enumerate(blocks, start=1):
            yield f"{path.relative_to(ROOT)} block {number}", block.partition("```")[0]


def found() -> dict[str, dict[str, Any]]:
    return {
        f"{name} job {number}": spec
        for name, text in texts()
        if "template:" in text
        for number, spec in enumerate(jobs(list(yaml.safe_load_all(text))), start=1)
    }


JOBS = found()


@pytest.mark.parametrize("name", JOBS)
def test_every_documented_job_survives_a_reclaim(name: str) -> None:
    spec = JOBS[name]
    assert spec.get("completionMode") == "Indexed"
    assert spec.get("backoffLimitPerIndex", 0) >= 1
    # The definition of JobSet asks for the status that a Job has by default.
    full = {**RULE, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    rules = spec.get("podFailurePolicy", {}).get("rules", [])
    assert RULE in rules or full in rules


def test_the_search_finds_jobs_of_all_kinds() -> None:
    names = " ".join(JOBS)
    for each in ("README.md", "gang.yaml", "job.yaml", "cronjob.yaml", "jobset.yaml job 2"):
        assert each in names
