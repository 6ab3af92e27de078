"""The choice of the control plane, and the build of its binaries, complete or not at all."""

import stat
from pathlib import Path

import pytest

from devcluster import build, checkout, find, go
from devcluster.errors import BuildError, ControlPlaneError
from devcluster.given import GivenControlPlane, KindControlPlane
from devcluster.local import LocalControlPlane


def program(directory: Path, name: str, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def silent(line: str) -> None:
    """Take a line of progress and drop it."""


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory in which every binary has been built."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    directory = build.cache_directory() / build.key()
    for name in build.PACKAGES:
        program(directory, name, "exit 0")
    return directory


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing but what the test puts there."""
    directory = tmp_path / "path"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


def test_an_explicit_kubeconfig_precedes_all_other_choices(
    built: Path, path: Path, tmp_path: Path
) -> None:
    program(path, "kind", "exit 0")
    program(path, "docker", "exit 0")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()

    options = find.Options(state_dir=tmp_path)
    plane = find.find(options, silent, {"BINDERY_KUBECONFIG": str(kubeconfig)})

    assert isinstance(plane, GivenControlPlane)
    assert plane.admin_kubeconfig == kubeconfig


def test_an_explicit_kubeconfig_that_is_missing_is_an_error(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match=r"BINDERY_KUBECONFIG=.*no such file"):
        find.find(find.Options(), silent, {"BINDERY_KUBECONFIG": str(tmp_path / "missing")})


def test_kind_is_used_if_a_container_engine_answers(
    built: Path, path: Path, tmp_path: Path
) -> None:
    program(path, "kind", "exit 0")
    program(path, "docker", "exit 0")

    plane = find.find(find.Options(state_dir=tmp_path), silent, {})

    assert isinstance(plane, KindControlPlane)


@pytest.mark.parametrize("engine", ["exit 1", "exec sleep 60"])
def test_kind_is_not_used_if_the_engine_does_not_answer(
    built: Path, path: Path, tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "ENGINE_TIMEOUT_SECONDS", 0.2)
    program(path, "kind", "exit 0")
    program(path, "docker", f"PATH=/usr/bin:/bin; {engine}")

    plane = find.find(find.Options(state_dir=tmp_path), silent, {})

    assert isinstance(plane, LocalControlPlane)


def test_kind_does_not_write_the_kubeconfig_of_the_user(
    built: Path, path: Path, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    program(path, "kind", f'echo "$@" >> {said}')
    program(path, "docker", "exit 0")

    with find.find(find.Options(state_dir=tmp_path / "state"), silent, {}) as plane:
        pass

    created, deleted = said.read_text().splitlines()
    assert created.startswith("create cluster --name=bindery-")
    assert deleted.startswith("delete cluster --name=bindery-")
    for line in (created, deleted):
        assert f"--kubeconfig={plane.admin_kubeconfig}" in line.split()


def test_binaries_in_kubebuilder_assets_precede_built_binaries(
    built: Path, path: Path, tmp_path: Path
) -> None:
    assets = tmp_path / "assets"
    for name in ("etcd", "kube-apiserver", "kubectl"):
        program(assets, name, "exit 0")

    plane = find.local(
        find.Options(state_dir=tmp_path), silent, {"KUBEBUILDER_ASSETS": str(assets)}
    )

    assert plane.kubectl_path == assets / "kubectl"
    assert plane.helm_path == built / "helm"
    assert plane.binaries.kube_apiserver == assets / "kube-apiserver"
    assert plane.binaries.kube_controller_manager == built / "kube-controller-manager"


def test_the_cache_key_contains_the_versions_and_depends_on_the_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = checkout.ROOT / "controlplane"
    module = tmp_path / "controlplane"
    module.mkdir()
    for name in ("go.mod", "go.sum"):
        (module / name).write_bytes((source / name).read_bytes())
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    before = build.key()

    with (module / "go.sum").open("a") as sums:
        sums.write("example.com/added v1.0.0 h1:x=\n")

    kubernetes = checkout.module_version("k8s.io/kubernetes")
    assert before.startswith(f"{kubernetes}-etcd-v3.")
    assert build.key() != before


def test_a_failed_build_shows_the_compiler_output_and_leaves_no_binary(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    version = f"go{go.MINIMUM[0]}.{go.MINIMUM[1]}.0"
    program(
        path, "go", f'[ "$1" = env ] && echo {version} && exit\necho no such module >&2; exit 1'
    )

    with pytest.raises(BuildError, match=r"(?s)go build .*etcd.*no such module"):
        build.binaries(["etcd"], silent)

    assert [found.name for found in (build.cache_directory() / build.key()).iterdir()] == ["lock"]


def test_an_existing_binary_is_not_built_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    version = f"go{go.MINIMUM[0]}.{go.MINIMUM[1]}.0"
    compiled = tmp_path / "compiled"
    # The target follows `-o`; the package comes last.
    program(
        path,
        "go",
        f'[ "$1" = env ] && echo {version} && exit\n'
        f'for word; do [ "$before" = -o ] && : > "$word"; before="$word"; done\n'
        f'echo "$word" >> {compiled}',
    )

    build.binaries(["etcd"], silent)
    found = build.binaries(["etcd", "kubectl"], silent)

    assert compiled.read_text().split() == [build.PACKAGES["etcd"], build.PACKAGES["kubectl"]]
    assert all(binary.exists() for binary in found.values())
