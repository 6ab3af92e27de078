"""The cluster with which a scenario begins, as a `Source`. Called by `sources`."""

from pathlib import Path

import typer

from bindery.answers.source import Source
from bindery.cli.options import Origin
from bindery.cli.reading.configurations import configured
from bindery.scenario.creation import snapshot_of
from bindery.scenario.files import read_only_scenario
from bindery.scenario.given_objects import given_objects, past_usage
from bindery.scheduler.history.place import KEY, history_name


def read_scenario_source(path: Path, origin: Origin) -> Source:
    """Return the cluster with which the only scenario of the file at `path` begins.

    Raises:
        FileError: a file cannot be used.
    """
    return read_with_history(path, origin)[0]


def read_with_history(path: Path, origin: Origin) -> tuple[Source, str]:
    """Return the same cluster and the text of its history, which is empty without one.

    Raises:
        FileError: a file cannot be used.
    """
    scenario = read_only_scenario(path)
    given = given_objects(scenario)
    for line in given.left_out:
        typer.echo(line, err=True)
    configuration = configured(origin, scenario.config.to_configuration())
    past = past_usage(scenario, given, configuration)
    source = Source(snapshot_of(scenario), configuration, scenario.now, past)
    namespace, name = configuration.leader_election.namespace, history_name(configuration.node_pool)
    return source, given.record(namespace, name, KEY) or ""
