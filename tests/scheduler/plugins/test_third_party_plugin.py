"""A plugin installed beside Bindery: found by its entry point, called at every extension point."""

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from bindery.api.configuration import PluginConfiguration
from bindery.api.plugins import PluginConfigurationError
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import (
    Clock,
    add,
    configuration,
    gang,
    node,
    plan,
    pod,
    report_of,
)

PLUGIN = """
import numpy as np
from pydantic import BaseModel

from bindery.scheduler.ledgers.base import LedgerRefusalError, OperationKind
from bindery.scheduler.model.verdicts import NodeFailure


class Arguments(BaseModel, extra="forbid"):
    seats: int = 1


class Licences:
    '''Sells a number of seats a node, on nodes whose label says that they have the software.'''

    name = "licences"

    arguments = Arguments

    def __init__(self, arguments):
        self.seats = arguments.seats
        self.sold = {}

    def ledger(self, session, state):
        return self

    def apply(self, operation):
        if operation.kind is OperationKind.EVICT:  # a pod that ends keeps its seat to the end
            return
        if self.sold.get(operation.row, 0) >= self.seats:
            raise LedgerRefusalError("has no seat left")
        self.sold[operation.row] = self.sold.get(operation.row, 0) + 1

    def revert(self, operation):
        if operation.kind is not OperationKind.EVICT:
            self.sold[operation.row] -= 1

    def node_failures(self, session, shape):
        yield NodeFailure("lack the software", ~session.labels.has("software"))

    def bind_data(self, session, task, row):
        return {"seat": f"{session.state.nodes.name(row)}-{task.name}"}

    def annotations(self, session, operations):
        return {"example.com/seats": str(len(operations))}

    def explain_wait(self, session, job, task, message):
        return "seats can be bought"
"""
ENTRY_POINTS = """
[bindery.scheduler_plugins]
licences = thirdparty_licences:Licences
absent = thirdparty_absent:Plugin
misspelt = thirdparty_licences:Licenses
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the plugin as pip would."""
    (tmp_path / "thirdparty_licences.py").write_text(textwrap.dedent(PLUGIN))
    distribution = tmp_path / "thirdparty_licences-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "thirdparty_licences", raising=False)


def engine_with_licences(*items: Any, seats: int = 1) -> Engine:
    plugins = [
        *configuration().plugins,
        PluginConfiguration(name="licences", arguments={"seats": seats}),
    ]
    engine = Engine(configuration(plugins), Clock())
    add(engine.cluster, *items)
    return engine


def nodes(count: int) -> list[Any]:
    return [node("bare"), *(node(f"n{i}", labels={"software": "2"}) for i in range(count))]


def test_the_filter_and_the_ledger_of_the_plugin_decide_the_nodes_of_pods() -> None:
    engine = engine_with_licences(*nodes(2), *gang("g", 4), seats=2)

    assert plan(engine) == {"g-0": "n0", "g-1": "n0", "g-2": "n1", "g-3": "n1"}


def test_a_gang_that_the_ledger_cannot_hold_whole_waits_and_uses_no_seat() -> None:
    engine = engine_with_licences(*nodes(2), *gang("g", 3), pod("z"))

    assert plan(engine) == {"z": "n0"}
    assert report_of(engine, "g").message == (
        "2 of 3 pods fit; for the next one 0/3 nodes are available: "
        "2 has no seat left, 1 lack the software"
    )


def test_the_message_of_the_plugin_follows_the_engines_message() -> None:
    engine = engine_with_licences(node("bare"), pod("p"))
    assert plan(engine) == {}

    (report,) = report_of(engine, "p").pods.values()
    assert report.message == "0/1 nodes are available: 1 lack the software; seats can be bought"


def test_the_request_has_the_data_and_annotations_of_the_plugin() -> None:
    (draft,) = engine_with_licences(*nodes(1), *gang("g", 2), seats=2).cycle()

    assert draft.annotations == {"example.com/seats": "2"}
    assert [p.plugin_data for p in draft.spec.pods] == [
        {"licences": {"seat": f"n0-g-{i}"}} for i in range(2)
    ]


def test_the_time_of_the_plugin_is_measured() -> None:
    engine = engine_with_licences(*nodes(1), pod("p"))
    plan(engine)

    assert engine.report.seconds_by_plugin["licences"] > 0


@pytest.mark.parametrize("name", ["absent", "misspelt"])
def test_a_plugin_that_cannot_be_imported_is_an_error_at_its_place(name: str) -> None:
    plugins = [PluginConfiguration(name="gang"), PluginConfiguration(name=name)]

    with pytest.raises(PluginConfigurationError, match=f"plugin {name} cannot be loaded") as caught:
        Engine(configuration(plugins), Clock())

    assert caught.value.location == ("plugins", 1, "name")
