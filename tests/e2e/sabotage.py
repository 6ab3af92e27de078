"""The configuration of the plugin in `plugins/`, and its journal."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bindery.api.configuration import PluginConfiguration
from bindery.kube.objects.watched import Pod

PLUGIN_DIRECTORY = Path(__file__).parent / "plugins"


@dataclass(frozen=True)
class Sabotage:
    """The arguments of the plugin; see there."""

    journal: Path
    die_in: str = ""
    die_at: int = 1
    refuse_node: str = ""
    refuse_turn_on: str = ""

    def configuration(self) -> PluginConfiguration:
        arguments = {
            "journal": str(self.journal),
            "die_in": self.die_in,
            "die_at": self.die_at,
            "refuse_node": self.refuse_node,
            "refuse_turn_on": self.refuse_turn_on,
        }
        return PluginConfiguration(name="saboteur", arguments=arguments)

    def calls(self, step: str) -> list[tuple[str, str]]:
        """Return pod and node of each call of `step` so far."""
        if not self.journal.exists():
            return []
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [(pod, node) for called, pod, node in lines if called == step]

    def has_finished(self, pods: Iterable[Pod]) -> Callable[[], Awaitable[bool]]:
        """Return a probe: whether post_bind was called for each pod on the node that it has."""
        wanted = {(pod.metadata.name, pod.spec.node_name) for pod in pods}

        async def probe() -> bool:
            return wanted <= set(self.calls("post_bind"))

        return probe
