"""Tests that need what not every machine has.

They are skipped with the reason. With the environment variable BINDERY_REQUIRE set, as in
`.ci/run`, they fail: a machine that is meant to run everything leaves nothing out. Tests on real
nodes or in a browser fail only where the value names them, as in
`BINDERY_REQUIRE=1,realnode,browser`.
"""

import os
from collections.abc import Iterable
from typing import NoReturn

import pytest

from devcluster.realnode import machine


def lacking(reason: str, part: str = "") -> NoReturn:
    """Skip the running test, or fail it where it is required; `part`: what has to be named."""
    required = os.environ.get("BINDERY_REQUIRE", "")
    if required and (not part or part in required.split(",")):
        pytest.fail(f"{reason} (BINDERY_REQUIRE={required})")
    pytest.skip(reason)


def demand_real_nodes(part: str = "realnode", further: Iterable[str] = ()) -> None:
    """Skip the running test, or fail it, where no real node runs; `further`: what else lacks."""
    for reason in (*machine.lacks(), *further):
        lacking(reason, part=part)
    if not machine.are_built():
        lacking("kubelet, containerd and runc are not built: make nodes", part=part)
