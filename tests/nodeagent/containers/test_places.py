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


def test_directories_that_volumes_have_made_before_are_for_their_owner_only(
    tmp_path: Path,
) -> None:
    places = AgentPlaces(tmp_path / "root", tmp_path / "logs")
    volume = places.pod("uid-1") / "volumes" / "kubernetes.io~empty-dir" / "scratch"
    volume.mkdir(parents=True)
    mode = volume.stat().st_mode

    places.make("uid-1")

    pods = tmp_path / "root" / "pods"
    for each in (pods, pods / "uid-1", pods / "uid-1" / "volumes"):
        assert oct(each.stat().st_mode & 0o777) == oct(0o750)
    assert volume.stat().st_mode == mode
