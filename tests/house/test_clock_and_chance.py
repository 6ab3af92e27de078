"""The components take their clock, their chance and their threads as arguments (decision 069).

So one process with one event loop can play a whole history, on a clock of its own and from one
seed. What reads the machine's is named here, with the reason.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = Path(__file__).resolve().parents[2] / "bindery"
COMPONENTS = ("kube", "scheduler", "binder", "grouper", "nodeagent")

MODULES = {
    *("_thread", "concurrent.futures", "gc", "multiprocessing", "random", "secrets", "signal"),
    *("threading", "time", "uuid"),
    # Of the product: what stands for the machine.
    *("bindery.kube.realenvironment", "bindery.scheduler.background", "bindery.binder.operator"),
}
"""Modules of which nothing is used."""
HARMLESS = {"random.Random", "uuid.NAMESPACE_URL", "uuid.UUID", "uuid.uuid5"}
"""Parts of these modules without a clock and without chance."""
FUNCTIONS = {
    *("add_signal_handler", "claim_signals", "run_in_executor", "to_thread"),
    *("date.today", "datetime.now", "datetime.today", "datetime.utcnow"),
    *("os.getpid", "os.getrandom", "os.urandom", "socket.gethostname"),
}
"""Further functions that are not called: attributes of any object, or of the one that is named."""

MEASURES = "it measures for a metric, and nothing is decided by it"
ALLOWED = {
    # What the commands of `cli` make real: a client that connects, and the entries of processes.
    "kube/realenvironment.py": ({"time.time", "random.SystemRandom"}, "it is the real environment"),
    "kube/client.py": (
        {"realenvironment.REAL"},
        "a client that connects to a real API server has the real environment",
    ),
    "scheduler/process.py": (
        {"background.BackgroundRunner"},
        "`run` gives Scheduler the runner of production",
    ),
    "binder/process.py": (
        {"operator.Operator", "claim_signals"},
        "`run` gives Binder kopf and the stop at a signal",
    ),
    "binder/webhook/process.py": ({"claim_signals"}, "a process of its own, without histories"),
    # What these are.
    "scheduler/background.py": (
        {"threading.Event", "threading.Thread", "time.thread_time"},
        "it is the thread of cycles",
    ),
    "binder/operator.py": ({"gc.get_objects"}, "it runs kopf, and closes the watches it leaves"),
    "binder/stopping.py": (
        {"add_signal_handler", "signal.SIGINT", "signal.SIGTERM"},
        "`claim_signals` is for entries",
    ),
    "nodeagent/containers/cgroups.py": (
        {"signal.SIGKILL"},
        "it ends what is left in a cgroup of this machine",
    ),
    "nodeagent/containers/logfiles.py": ({"to_thread"}, "it compresses files of many megabytes"),
    "kube/http/threadtransport.py": (
        {"threading.Lock", "threading.Thread"},
        "the carrier of commands, which Client.connect makes",
    ),
    "kube/access/tokens.py": (
        {"time.time"},
        "only a carrier of Client.connect has tokens; the end of one is by the wall clock",
    ),
    # What is read although a history comes by.
    "kube/events/recorder.py": ({"socket.gethostname"}, "events name the machine"),
    "scheduler/engine.py": ({"time.perf_counter"}, MEASURES),
    "scheduler/plugins/registry.py": ({"time.perf_counter"}, MEASURES),
    "scheduler/plugins/dra/cel.py": (
        {"time.perf_counter", "time.thread_time"},
        "it stops an expression that computes for 0.25 s, where others take microseconds",
    ),
    "scheduler/usage/record.py": (
        {"threading.RLock"},
        "the thread of a cycle writes; in one thread nobody ever waits for the lock",
    ),
    "binder/plugins/gpusharing/admission.py": (
        {"secrets.token_hex"},
        "it draws names at admission, in the webhook's process",
    ),
}


def mentioned(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports or reads of others, by its full name."""
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                origins[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield full
        elif isinstance(node, ast.Call) and ast.unparse(node) in ("Random()", "random.Random()"):
            yield "random.Random()"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            head, _, rest = ast.unparse(node).partition(".")
            yield f"{origins.get(head, '')}.{rest}"


def found(text: str) -> set[str]:
    """Return what a module uses of the machine."""
    used = set[str]()
    for name in set(mentioned(ast.parse(text))) - HARMLESS:
        short = ".".join(name.split(".")[-2:])
        function = name.rpartition(".")[2]
        if function in FUNCTIONS:
            used.add(function)
        elif short in FUNCTIONS or any(f"{name}.".startswith(f"{module}.") for module in MODULES):
            used.add(short)
    return used


def test_the_components_take_clock_and_chance_and_threads_as_arguments() -> None:
    paths = [path for each in COMPONENTS for path in sorted((PRODUCT / each).rglob("*.py"))]
    read = {str(path.relative_to(PRODUCT)): found(path.read_text("utf-8")) for path in paths}

    assert {path: used for path, used in read.items() if used} == {
        path: used for path, (used, _) in ALLOWED.items()
    }


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("import time\nnow = time.time()", {"time.time"}),
        ("import time as t\nclock = t.monotonic", {"time.monotonic"}),
        ("def f():\n    from time import monotonic", {"time.monotonic"}),
        ("from random import Random\nr: Random", set()),
        ("from random import Random\nr = Random(7)", set()),
        ("from random import Random\nr = Random()", {"random.Random()"}),
        ("import random\nrandom.random()", {"random.random"}),
        ("from uuid import uuid4, uuid5", {"uuid.uuid4"}),
        ("import secrets\nsecrets.token_hex(4)", {"secrets.token_hex"}),
        ("from threading import Lock", {"threading.Lock"}),
        ("from concurrent.futures import Executor", {"futures.Executor"}),
        ("from concurrent import futures", {"concurrent.futures"}),
        ("import asyncio\nasyncio.to_thread(f)", {"to_thread"}),
        ("from asyncio import to_thread", {"to_thread"}),
        ("loop.run_in_executor(None, f)", {"run_in_executor"}),
        ("asyncio.get_running_loop().add_signal_handler(2, f)", {"add_signal_handler"}),
        ("from datetime import datetime\ndatetime.now(UTC)", {"datetime.now"}),
        ("import datetime\ndatetime.datetime.now()", {"datetime.now"}),
        ("import os\nos.urandom(4)", {"os.urandom"}),
        ("from os import urandom", {"os.urandom"}),
        ("from bindery.kube import realenvironment", {"kube.realenvironment"}),
        ("asyncio.get_running_loop().time()\nself.environment.random.random()", set()),
    ],
)  # fmt: skip
def test_each_way_to_the_machine_is_seen(text: str, used: set[str]) -> None:
    assert found(text) == used
