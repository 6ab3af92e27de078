"""The directories of the agent's pods."""

from pathlib import Path

from bindery.nodeagent.containers.configs import AgentPlaces


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
