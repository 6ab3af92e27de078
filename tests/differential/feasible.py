"""The filters of kube-scheduler, asked about pods. The program is built from its Go packages."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bindery.controlplane import build, checkout, go

Manifest = dict[str, Any]


def program() -> Path:
    """Return the program `feasible`, built first if its source or its modules have changed."""
    module = checkout.directory("controlplane")
    source = module / "feasible"
    digest = hashlib.sha256()
    for path in (module / "go.mod", module / "go.sum", *sorted(source.glob("*.go"))):
        digest.update(path.read_bytes())
    path = build.cache_directory() / f"feasible-{digest.hexdigest()[:16]}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        compiler = go.find(build.cache_directory(), lambda line: print(line, file=sys.stderr))
        scratch = path.with_suffix(".new")
        subprocess.run(
            [str(compiler), "build", "-trimpath", "-o", str(scratch), "./feasible"],
            cwd=module,
            env=go.environment(),
            check=True,
            capture_output=True,
        )
        scratch.replace(path)
    return path


def feasible_nodes(questions: Sequence[Manifest]) -> list[set[str]]:
    """Return for each of `questions` the nodes that kube-scheduler's filters let through."""
    lines = "\n".join(json.dumps(question) for question in questions)
    done = subprocess.run(
        [str(program())], input=lines, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return [set(json.loads(line)["nodes"]) for line in done.stdout.splitlines()]
