"""The image of the components: its contents, and that its build is reproducible."""

import gzip
import importlib.metadata
import json
import tarfile
from pathlib import Path

import pytest

from devcluster.errors import BuildError
from devcluster.image import oci, parts
from devcluster.image.build import Built, build, fill
from devcluster.image.packages import Packages
from tests.debianpackages import require_packages

MOST_MB = 350
NAME = "registry.example:5000/bindery:test"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The image on Debian's packages, from what the user's cache has."""
    require_packages()
    return build(NAME, tmp_path_factory.mktemp("image"), print)


def members(layer: oci.Layer) -> list[tarfile.TarInfo]:
    assert isinstance(layer.blob.content, Path)
    with tarfile.open(layer.blob.content) as tar:
        return tar.getmembers()


def test_the_image_is_small_and_its_listed_parts_are_complete(built: Built) -> None:
    in_layers = sum(each.size for layer in built.image.layers for each in members(layer))

    assert built.size == in_layers < MOST_MB * 1_000_000
    assert sorted(built.parts, key=lambda part: -part.size) == list(built.parts)
    rest = next(part for part in built.parts if part.name == parts.REST)
    assert 0 <= rest.size < 1_000_000


def test_the_image_runs_unprivileged_and_has_no_setuid_files(built: Built) -> None:
    entries = [each for layer in built.image.layers for each in members(layer)]

    assert built.image.config["User"] == "65532:65532"
    assert {(each.uid, each.gid, each.mtime) for each in entries} == {(0, 0, 0)}
    assert not [each.name for each in entries if each.mode & 0o6000]
    open_to_all = [each.name for each in entries if each.mode & 0o002 and not each.issym()]
    assert open_to_all == ["tmp"]


def test_modules_of_the_image_are_compiled_without_time_checks(built: Built) -> None:
    names = {each.name for layer in built.image.layers for each in members(layer)}
    sources = [
        Path(name)
        for name in names
        if name.endswith(".py") and "/site-packages/kubernetes/" not in name
    ]
    compiled = {str(Path(name).parent) for name in names if name.endswith(".pyc")}
    modules = [
        path for path in sources if path.is_relative_to("usr/lib") or "site-packages" in str(path)
    ]

    assert not [str(path) for path in modules if str(path.parent / "__pycache__") not in compiled]
    with tarfile.open(str(built.image.layers[-1].blob.content)) as tar:
        for each in tar.getmembers():
            if each.name.endswith(".pyc") and (file := tar.extractfile(each)):
                assert file.read(8)[4:] == b"\x01\0\0\0"


def test_the_bill_of_materials_names_every_package(built: Built) -> None:
    bill = json.loads(built.materials.read_text())

    listed = {component["purl"] for component in bill["components"] if "purl" in component}
    of_python = [part for part in built.parts if part.kind == parts.PYTHON]
    of_debian = [part for part in built.parts if part.kind == parts.DEBIAN]
    assert len(bill["components"]) == len(of_python) + len(of_debian)
    assert {f"pkg:pypi/numpy@{importlib.metadata.version('numpy')}"} <= listed
    assert any(each.startswith("pkg:deb/debian/libc6@") for each in listed)
    assert bill["metadata"]["component"]["version"] == built.image.manifest.digest


def test_the_archive_contains_the_name_of_the_image_for_engines(built: Built) -> None:
    with tarfile.open(built.archive) as tar:
        index, loadable = (
            json.load(tar.extractfile(name) or pytest.fail(name))
            for name in ("index.json", "manifest.json")
        )

    (manifest,) = index["manifests"]
    assert manifest["digest"] == built.image.manifest.digest
    assert manifest["annotations"]["io.containerd.image.name"] == NAME
    assert loadable[0]["RepoTags"] == [NAME]


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("bindery:1", "docker.io/library/bindery:1"),
        ("team/bindery:1", "docker.io/team/bindery:1"),
        ("localhost/bindery:1", "localhost/bindery:1"),
        ("registry:5000/bindery:1", "registry:5000/bindery:1"),
    ],
)
def test_an_image_name_is_completed_as_by_engines(name: str, full: str) -> None:
    assert oci.full_name(name) == full


@pytest.mark.long("the next two are of the sample")
def test_a_second_build_in_an_empty_cache_has_the_same_bytes(built: Built, tmp_path: Path) -> None:
    again = build(NAME, tmp_path / "image", print, cache=tmp_path / "cache")

    assert again.archive.read_bytes() == built.archive.read_bytes()
    assert again.materials.read_bytes() == built.materials.read_bytes()


def test_a_second_build_of_the_base_has_the_same_bytes(built: Built, tmp_path: Path) -> None:
    made = Packages(tmp_path)
    made.download(print)
    fill(tmp_path / "root", made, made.chosen())

    again = oci.pack(tmp_path / "root", tmp_path / "base.tar")

    assert again.diff_id == built.image.layers[0].diff_id


@pytest.mark.long("builds the image a second time")
def test_a_base_from_an_archive_is_kept_below_the_same_layers(built: Built, tmp_path: Path) -> None:
    """The base of a registry, in its compressed form; built in an empty cache."""
    lowest, *_ = built.image.layers
    assert isinstance(lowest.blob.content, Path)
    packed = tmp_path / "layer.tar.gz"
    packed.write_bytes(gzip.compress(lowest.blob.content.read_bytes(), 1))
    blob = oci.Blob.of("application/vnd.oci.image.layer.v1.tar+gzip", packed)
    base = oci.Image("base:1", (oci.Layer(blob, lowest.diff_id),), {"Env": ["PATH=/usr/bin"]})
    archive = oci.write([base], tmp_path / "base.tar")

    again = build(NAME, tmp_path / "image", print, str(archive), tmp_path / "cache")

    assert again.image.layers[0].blob.digest == blob.digest
    assert [each.diff_id for each in again.image.layers] == [
        each.diff_id for each in built.image.layers
    ]
    assert again.image.config["Env"][0] == "PATH=/opt/bindery/bin:/usr/bin"


def test_a_file_other_than_an_image_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "notes.tar"
    file.write_text("notes")

    with pytest.raises(BuildError, match=r"notes\.tar"):
        oci.read(file, tmp_path / "unpacked")


def test_packages_of_installers_are_omitted(built: Built, tmp_path: Path) -> None:
    names = {each.name for each in Packages(tmp_path).chosen()}

    assert {"libc6", "python3-minimal"} <= names
    assert not {"dpkg", "perl-base", "debconf", "tar"} & names
