"""The cluster with which a scenario begins, as a `Source`. Called by `sources`."""

from pathlib import Path

from bindery.answers.source import Source
from bindery.cli.options import Origin
from bindery.cli.reading.configurations import configured
from bindery.scenario.beginning import snapshot_of
from bindery.scenario.files import read_only_scenario


def read_scenario_source(path: Path, origin: Origin) -> Source:
    """Return the cluster with which the only scenario of the file at `path` begins.

    Raises:
        FileError: a file cannot be used.
    """
    scenario = read_only_scenario(path)
    used = {queue.name: queue.usage for queue in scenario.queues if queue.usage}
    configuration = configured(origin, scenario.config.to_configuration())
    return Source(snapshot_of(scenario), configuration, scenario.now, used)
