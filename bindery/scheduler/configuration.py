"""The scheduler's configuration file: read at the start, and again after each change.

An invalid file stops the start, with an error that has file, line and key. After a change, an
invalid file is reported, and the last valid configuration stays in use.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from bindery.api import yamlfile
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.plugins import PluginConfigurationError
from bindery.scheduler.actions import registry as actions
from bindery.scheduler.commit.metrics import CONFIGURATION_ERRORS, CONFIGURATION_UNUSABLE
from bindery.scheduler.plugins import registry

POLL_S = 2.0
_FIXED = (
    "scheduler_name",
    "node_pool",
    "gpu_resources",
    "gpu_device_classes",
    "leader_election",
    "tenancy_policy_enforced",
    "grouper",
)
"""Fields that a running process cannot change."""

_log = structlog.get_logger()


class ConfigurationFile:
    """The configuration in the file at `path`, else the defaults; raises FileError."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.problem = ""
        """Why the last change of the file cannot be used; empty if `current` is in the file."""
        self._text = ""
        self.current = SchedulerConfiguration()
        if path is not None:
            self.current = load(path)
            self._text = path.read_text(encoding="utf-8")

    async def changes(self) -> AsyncIterator[SchedulerConfiguration]:
        """Yield each new valid configuration."""
        while self.path is not None:
            await asyncio.sleep(POLL_S)
            text = ""
            try:
                text = self.path.read_text(encoding="utf-8")
                if text == self._text:
                    continue
                new = load(self.path)
            except (OSError, UnicodeDecodeError, yamlfile.FileError) as error:
                self._report(str(error))
                continue
            finally:
                self._text = text  # "" if it could not be read: what comes back is news
            self.problem = ""
            CONFIGURATION_UNUSABLE.set(0)
            fixed = {name: getattr(self.current, name) for name in _FIXED}
            for name in _FIXED:
                if getattr(new, name) != fixed[name]:
                    _log.warning("change takes effect at the next start", field=name)
            if new.usage.source != self.current.usage.source:
                _log.warning("change takes effect at the next start", field="usage.source")
                fixed["usage"] = self.current.usage
            self.current = new.model_copy(update=fixed)
            yield self.current

    def _report(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        CONFIGURATION_ERRORS.inc()
        CONFIGURATION_UNUSABLE.set(1)
        _log.error("invalid configuration, the previous one stays", error=problem)


def load(path: Path) -> SchedulerConfiguration:
    """Return the configuration in the file at `path`, checked against the installed plugins.

    Raises:
        FileError: the file is not valid; the error has file, line and key.
    """
    documents = yamlfile.read(path)
    if len(documents) != 1:
        raise yamlfile.FileError(str(path), 1, f"one document expected, {len(documents)} found")
    configuration = yamlfile.validate(SchedulerConfiguration, documents[0])
    try:
        actions.make(configuration)
    except actions.UnknownActionError as error:
        raise documents[0].error(("actions", error.index), str(error)) from error
    try:
        registry.load(configuration.plugins)
    except PluginConfigurationError as error:
        raise documents[0].error(error.location, error.message) from error
    return configuration
