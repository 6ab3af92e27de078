"""The cluster with which a scenario begins, as a `Source`. Called by `sources`."""

from pathlib import Path

from bindery.api.yamlfile import FileError
from bindery.cli.options import Origin
from bindery.cli.sources import Source, configured
from bindery.scenario.beginning import snapshot_of
from bindery.scenario.files import read_scenarios
from bindery.scenario.format import Scenario


def read_scenario_source(path: Path, origin: Origin) -> Source:
    """Return the cluster with which the only scenario of the file at `path` begins.

    Raises:
        FileError: a file cannot be used.
    """
    scenario = _only_scenario(path)
    used = {queue.name: queue.usage for queue in scenario.queues if queue.usage}
    configuration = configured(origin, scenario.config.to_configuration())
    return Source(snapshot_of(scenario), configuration, scenario.now, used)


def _only_scenario(path: Path) -> Scenario:
    found = list(read_scenarios(path))
    for item in found:
        if isinstance(item, FileError):
            raise item
    if len(found) != 1:
        raise FileError(str(path), 1, f"one scenario is expected, {len(found)} found")
    (scenario,) = found
    assert isinstance(scenario, Scenario), "errors have been raised"
    return scenario
