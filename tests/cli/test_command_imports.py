"""Imports of each command: a command that loads modules that it does not need is slow.

The lists stand for times, which differ from machine to machine. A name that comes here by accident
is imported too early; one that is really needed is added, with the time that it takes.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = [
    *("aiohttp", "cel_expr_python", "cryptography", "grpc", "kopf", "kubernetes", "msgspec"),
    *("numpy", "prometheus_client", "pydantic", "rich", "structlog", "typer", "yaml"),
]
"""What takes time to import: every library that Bindery depends on."""

OFFLINE = "msgspec typer yaml"
TALKING = "msgspec typer yaml"
"""For requests to a server; aiohttp and the metrics take longer than the requests."""
PLANNING = "cel_expr_python msgspec numpy pydantic rich typer yaml"
"""Also the package nodecore, for the zones of nodes: 0.06 s."""


def imported(*arguments: str, **environment: str) -> tuple[set[str], set[str]]:
    """Run a command; return the libraries that it imports, and the packages of Bindery."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("bindery")), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    modules = set(re.findall(r"^import time: .*\| +([\w.]+)$", done.stderr, flags=re.MULTILINE))
    assert "bindery.cli.main" in modules
    ours = {module.split(".")[1] for module in modules if module.startswith("bindery.")}
    return {library for library in LIBRARIES if library in modules}, ours


@pytest.mark.parametrize(
    ("command", "libraries", "packages"),
    [
        ("--help", "typer", "cli"),
        ("version --client", "typer", "cli"),
        ("get --help", "rich typer", "answers api cli"),
        ("status --help", "typer", "cli"),
        ("queues --help", "typer", "cli"),
        ("explain --help", "typer", "cli"),
        ("whatif --help", "typer", "cli"),
        ("snapshot --help", "typer", "cli"),
        (
            "explain sweep --file examples/scenarios/two-teams.yaml",
            PLANNING,
            "answers api cli kube nodecore scenario scheduler",
        ),
    ],
)
def test_a_command_imports_only_modules_that_it_needs(
    command: str, libraries: str, packages: str
) -> None:
    found = imported(*command.split())

    assert found == (set(libraries.split()), set(packages.split()))


def test_a_missing_kubeconfig_is_an_error_before_client_libraries_are_imported(
    tmp_path: Path,
) -> None:
    """The configuration is read before the import of any client library."""
    libraries, packages = imported("--kubeconfig", str(tmp_path / "none"), "version")

    assert (libraries, packages) == (set(OFFLINE.split()), {"api", "cli", "kube"})


def test_a_reservation_pod_imports_few_modules_before_it_reports_its_gpu() -> None:
    """The first share of a GPU waits for it. The modules for `logs` took three times as long."""
    libraries, packages = imported("reservation", "hold", "--help")

    assert libraries == {"msgspec", "typer"}
    assert packages == {"api", "cli", "kube", "nodeagent", "observability"}


@pytest.mark.parametrize("module", ["bindery.scheduler.process", "bindery.binder.process"])
def test_no_component_imports_the_kubernetes_client(module: str) -> None:
    """It takes up to a second and tens of MiB; only `auth-provider` in a kubeconfig needs it."""
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    modules = json.loads(done.stdout)
    assert module in modules
    assert not [name for name in modules if name.partition(".")[0] == "kubernetes"]
