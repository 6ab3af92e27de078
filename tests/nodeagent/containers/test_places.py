"""The directories of the agent's pods."""

from pathlib import Path

from bindery.nodeagent.containers.configs import AgentPlaces
from tests.nodeagent.containers.harness import container, decoded, manifest


def test_logs_of_pods_that_are_gone_are_removed_and_no_others(tmp_path: Path) -> None:
    places = AgentPlaces(tmp_path / "root", tmp_path / "logs")
    places.remove_logs(())  # no pod has had any
    pod = decoded(manifest(container()))
    logs = places.pod_logs(pod)
    gone, other = logs.with_name("default_gone_0a1b"), logs.with_name("other")
    for each in (logs, gone, other):
        (each / "app").mkdir(parents=True)
        (each / "app" / "0.log").touch()

    places.remove_logs({pod.metadata.uid})

    assert sorted(places.logs.iterdir()) == sorted((logs, other))
