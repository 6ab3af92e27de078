"""A binder that the tests of a module share, where none of them kills it or counts what it does."""

from bindery.api.configuration import BinderConfiguration
from devcluster.components import Component, Components


class SharedBinder:
    """Runs one binder at a time; a test that wants another configuration gets a new one."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._configuration: BinderConfiguration | None = None
        self._running: Component | None = None

    def run(self, configuration: BinderConfiguration) -> None:
        """Return once a binder with `configuration` is ready, and no other one runs."""
        if self._running is not None and self._configuration == configuration:
            return
        self.stop()
        self._configuration = configuration
        self._running = self._components.start_binder(configuration, name="shared").wait_ready()

    def stop(self) -> None:
        """Stop the binder, if one runs, for a test that starts its own."""
        if self._running is not None:
            self._running.stop()
            self._running = None
