"""The small Go programs beside the control plane, built from Kubernetes' own packages."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from devcluster import build, checkout, go

SHARED_MEMORY = Path("/dev/shm")
IN_MEMORY = {"TMPDIR": str(SHARED_MEMORY)} if SHARED_MEMORY.is_dir() else {}
"""The kubelet flushes each of its files to the disk, which takes nearly all of the time."""


def program(name: str, module: str = build.MODULE) -> Path:
    """Return the program `name`, built first if its source or its modules have changed."""
    directory = checkout.ROOT / module
    digest = hashlib.sha256()
    for path in (
        *(directory / "go.mod", directory / "go.sum"),
        *sorted((directory / name).glob("*.go")),
    ):
        digest.update(path.read_bytes())
    path = build.cache_directory() / f"{name}-{digest.hexdigest()[:16]}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        compiler = go.find(build.cache_directory(), lambda line: print(line, file=sys.stderr))
        scratch = path.with_suffix(".new")
        subprocess.run(
            [str(compiler), "build", "-trimpath", "-o", str(scratch), f"./{name}"],
            cwd=directory,
            env=go.environment(),
            check=True,
            capture_output=True,
        )
        scratch.replace(path)
    return path


def ask(name: str, questions: Sequence[Any], module: str = build.MODULE) -> list[Any]:
    """Return the answer of the program `name` to each of `questions`."""
    lines = "\n".join(json.dumps(question) for question in questions)
    done = subprocess.run(
        [str(program(name, module))],
        input=lines,
        env={**os.environ, **IN_MEMORY},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
