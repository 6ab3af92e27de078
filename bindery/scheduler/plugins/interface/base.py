"""What every scheduler plugin has."""

from typing import Protocol


class Plugin(Protocol):
    """The members of every plugin."""

    @property
    def name(self) -> str:
        """The plugin's name in the configuration, and its key in `pluginData`."""
