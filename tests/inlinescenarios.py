"""Clusters from scenarios, so that a test can describe its cluster in YAML."""

import textwrap

from bindery.answers.source import Source
from bindery.api.yamlfile import parse
from bindery.scenario.creation import snapshot_of
from bindery.scenario.files import parse_scenario
from bindery.scenario.format import Scenario

__all__ = ["scenario_of", "snapshot_of", "source_of"]


def scenario_of(text: str) -> Scenario:
    (document,) = parse(textwrap.dedent(text), "inline.yaml")
    return parse_scenario(document)


def source_of(scenario: Scenario) -> Source:
    """Return the cluster with which `scenario` begins, and its scheduler."""
    return Source(snapshot_of(scenario), scenario.config.to_configuration(), scenario.now)
