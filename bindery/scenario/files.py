"""Reading scenario files.

Called by the command line and the tests. A mistake in a file is a `FileError` with its line and
key; the other documents of the file can still be used.
"""

from collections.abc import Iterator
from pathlib import Path

from bindery.api.configuration import DEFAULT_ACTIONS, DEFAULT_PLUGINS
from bindery.api.plugins import PluginConfigurationError
from bindery.api.spelling import meant, no_such
from bindery.api.yamlfile import Document, FileError, Location, read, validate
from bindery.scenario import given_objects
from bindery.scenario.checks import check, plugin_places
from bindery.scenario.format import ConfigurationOverrides, Scenario
from bindery.scenario.support import unsupported
from bindery.scheduler.plugins import registry

_SUFFIXES = frozenset({".yaml", ".yml"})


class UnsupportedError(FileError):
    """A scenario uses a key that is not supported yet; `key` names it."""

    def __init__(self, file: str, line: int, key: str) -> None:
        super().__init__(file, line, f"not supported yet: {key}")
        self.key = key


def parse_scenario(document: Document) -> Scenario:
    """Return the scenario in `document`.

    Raises:
        FileError: a key is wrong; or, as UnsupportedError, its behaviour does not exist yet.
    """
    scenario = validate(Scenario, document)
    findings = [*check(scenario), *_misspelt(scenario.config)]
    if findings:
        raise _first(document, findings)
    _check_plugins(scenario, document)
    if scenario.objects:
        kinds = given_objects.kinds_of(scenario.config.to_configuration().plugins)
        findings = list(given_objects.problems(scenario, kinds))
        if findings:
            raise _first(document, findings)
    missing = list(unsupported(scenario))
    if missing:
        line, _, key = min((document.line(place), n, key) for n, (place, key) in enumerate(missing))
        raise UnsupportedError(document.file, line, key)
    return scenario


def scenario_files(path: Path) -> list[Path]:
    """Return the scenario files that `path` means: itself, or all below a folder, by their paths.

    Raises:
        FileError: it is a folder without any.
    """
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise FileError(str(path), 1, "there is no *.yaml or *.yml file in this folder")
    return found


def read_scenarios(path: Path) -> Iterator[Scenario | FileError]:
    """Yield each scenario of the file at `path`, or its error."""
    try:
        documents = read(path)
    except FileError as error:
        yield error
        return
    if not documents:
        yield FileError(str(path), 1, "there is no scenario in the file")
    for document in documents:
        try:
            scenario = parse_scenario(document)
        except FileError as error:
            yield error
        else:
            yield scenario


def read_only_scenario(path: Path) -> Scenario:
    """Return the only scenario of the file at `path`.

    Raises:
        FileError: the scenario cannot be used, or the file has another number of them.
    """
    scenarios: list[Scenario] = []
    for item in read_scenarios(path):
        if isinstance(item, FileError):
            raise item
        scenarios.append(item)
    if len(scenarios) != 1:
        raise FileError(str(path), 1, f"one scenario is expected, {len(scenarios)} found")
    return scenarios[0]


def _misspelt(config: ConfigurationOverrides) -> Iterator[tuple[Location, str]]:
    """Yield the unknown actions, and the plugins with misspelt names.

    A plugin that resembles none that is installed may be one of a later version.
    """
    for index, action in enumerate(config.actions or ()):
        if action not in DEFAULT_ACTIONS:
            yield ("config", "actions", index), no_such("action", action, DEFAULT_ACTIONS)
    for location, name in plugin_places(config):
        if name not in DEFAULT_PLUGINS:
            known = registry.names()
            if name not in known and meant(name, known):
                yield location, no_such("plugin", name, known)


def _check_plugins(scenario: Scenario, document: Document) -> None:
    configuration = scenario.config.to_configuration()
    if scenario.config.scheduler is not None:
        try:
            registry.load(scenario.config.scheduler.plugins)
        except PluginConfigurationError as error:
            key = ("config", "scheduler", *error.location)
            raise document.error(key, error.message) from error
    for plugin in configuration.plugins:
        if plugin.name in scenario.config.plugins:
            try:
                registry.load((plugin,))
            except PluginConfigurationError as error:
                key = ("config", "plugins", plugin.name, *error.location[3:])
                raise document.error(key, error.message) from error


def _first(document: Document, findings: list[tuple[Location, str]]) -> FileError:
    location, message = min(findings, key=lambda finding: document.line(finding[0]))
    return document.error(location, message)
