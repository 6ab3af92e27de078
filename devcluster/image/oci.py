"""Archives of container images: OCI image layouts (image-spec v1.1) in a tar file.

Docker, containerd, Podman and skopeo load them. The same files give the same bytes: entries are
sorted, belong to root, and have no times.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from devcluster.errors import BuildError

_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Blob:
    """A part of an archive."""

    media_type: str
    digest: str
    """`sha256:` and 64 digits."""
    size: int
    content: bytes | Path

    @classmethod
    def of(cls, media_type: str, content: bytes | Path) -> "Blob":
        """Return the blob with this content, which may be a file."""
        if isinstance(content, bytes):
            digest, size = hashlib.sha256(content).hexdigest(), len(content)
        else:
            with content.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = content.stat().st_size
        return cls(media_type, f"sha256:{digest}", size, content)

    @property
    def descriptor(self) -> dict[str, Any]:
        """The reference to this blob in other blobs."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}

    @property
    def path(self) -> str:
        """The path in an archive."""
        return f"blobs/{self.digest.replace(':', '/')}"


@dataclass(frozen=True)
class Layer:
    """A layer, compressed or not."""

    blob: Blob
    diff_id: str
    """The digest of its tar file."""

    @classmethod
    def of(cls, tar: bytes | Path) -> "Layer":
        """Return the layer with the content of a tar file."""
        blob = Blob.of(_LAYER, tar)
        return cls(blob, blob.digest)


@dataclass(frozen=True)
class Image:
    """An image, lowest layer first."""

    name: str
    """Name with a tag."""
    layers: tuple[Layer, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    """Configuration of containers, as in the OCI image configuration."""

    @property
    def configuration(self) -> Blob:
        """The image configuration; its digest is the image ID."""
        document = {
            "architecture": architecture(),
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in self.layers]},
        }
        return Blob.of(_CONFIG, _json(document))

    @property
    def manifest(self) -> Blob:
        """The manifest; its digest names the image in a registry."""
        document = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self.configuration.descriptor,
            "layers": [each.blob.descriptor for each in self.layers],
        }
        return Blob.of(_MANIFEST, _json(document))


def architecture() -> str:
    """Return the architecture of this machine, as images name it."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def layer(
    files: Mapping[str, bytes],
    links: Mapping[str, str] | None = None,
    directories: Mapping[str, int] | None = None,
) -> bytes:
    """Return a tar file with programs by path, symbolic links by path, and modes of directories."""
    target = io.BytesIO()
    with _tar(target) as tar:
        for path, mode in sorted((directories or {}).items()):
            tar.addfile(_entry(path, tarfile.DIRTYPE, mode))
        for path, content in sorted(files.items()):
            entry = _entry(path, tarfile.REGTYPE, 0o755)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for path, to in sorted((links or {}).items()):
            tar.addfile(_link(path, to))
    return target.getvalue()


def pack(root: Path, target: Path, besides: frozenset[str] = frozenset()) -> Layer:
    """Write the files below `root` as a tar file to `target`, and return it as a layer.

    `besides`: paths that are left out, as `paths` returns them.
    """
    with target.open("wb") as file, _tar(file) as tar:
        for path in sorted(paths(root) - besides):
            _add(tar, root / path, path)
    return Layer.of(target)


def paths(root: Path) -> frozenset[str]:
    """Return the paths of all files and directories below `root`, relative to `root`."""
    return frozenset(str(path.relative_to(root)) for path in root.rglob("*"))


def write(images: Iterable[Image], path: Path) -> Path:
    """Write an archive with `images` to `path` and return it."""
    images = list(images)
    manifests = []
    loadable = []
    blobs: dict[str, Blob] = {}
    for image in images:
        parts = [image.manifest, image.configuration, *(each.blob for each in image.layers)]
        blobs |= {each.path: each for each in parts}
        tag = image.name.rpartition(":")[2]
        # The first name is read by containerd, the second is of OCI layouts.
        names = {
            "io.containerd.image.name": full_name(image.name),
            "org.opencontainers.image.ref.name": tag,
        }
        manifests.append({**image.manifest.descriptor, "annotations": names})
        layers = [each.blob.path for each in image.layers]
        config = image.configuration.path
        loadable.append({"Config": config, "RepoTags": [image.name], "Layers": layers})
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
    documents = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        # Docker before 25 reads only this file.
        "manifest.json": _json(loadable),
    }
    with path.open("wb") as file, _tar(file) as tar:
        for name, content in documents.items():
            _add_content(tar, name, content, len(content))
        for name, blob in sorted(blobs.items()):
            _add_content(tar, name, blob.content, blob.size)
    return path


def read(archive: Path, directory: Path) -> Image:
    """Return the image for this machine in an OCI archive, which is unpacked to `directory`.

    Raises:
        BuildError: it is not an OCI archive, or has no image for this architecture.
    """
    _extract(archive, directory)
    try:
        manifest = _manifest(directory, _document(directory / "index.json"))
        config = _document(_blob(directory, manifest["config"]))
        layers = [
            Layer(Blob.of(each["mediaType"], _blob(directory, each)), diff_id)
            for each, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True)
        ]
    except (OSError, KeyError, ValueError) as error:
        raise BuildError(f"{archive} is no OCI archive that can be used: {error!r}") from error
    return Image(str(archive), tuple(layers), config.get("config", {}))


def unpack(image: Image, root: Path) -> None:
    """Unpack the layers of an image into `root`. The layers are files; only files that programs
    need are complete.
    """
    for each in image.layers:
        _extract(Path(str(each.blob.content)), root)


def full_name(name: str) -> str:
    """Return the name of an image with its registry, as container engines complete it."""
    first, slash, _ = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def _extract(archive: Path, directory: Path) -> None:
    """Unpack a tar file, compressed or not, by the program, which knows all compressions."""
    directory.mkdir(parents=True, exist_ok=True)
    options = ["--no-same-owner", "--exclude=dev/*", f"--directory={directory}"]
    result = subprocess.run(  # noqa: S603  constant arguments
        ["tar", "--extract", f"--file={archive}", *options],  # noqa: S607  any tar
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise BuildError(f"{archive} cannot be unpacked: {result.stderr.strip()[-1000:]}")


def _manifest(directory: Path, index: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest for this machine, from an index that may be nested."""
    for each in index["manifests"]:
        platform_ = each.get("platform", {})
        if platform_.get("architecture", architecture()) != architecture():
            continue
        found = _document(_blob(directory, each))
        return _manifest(directory, found) if "manifests" in found else found
    raise ValueError(f"no image for {architecture()}")


def _blob(directory: Path, descriptor: Mapping[str, Any]) -> Path:
    algorithm, _, digest = str(descriptor["digest"]).partition(":")
    return directory / "blobs" / algorithm / digest


def _document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def _add(tar: tarfile.TarFile, source: Path, path: str) -> None:
    """Add a file, link or directory."""
    if source.is_symlink():
        tar.addfile(_link(path, str(source.readlink())))
        return
    mode = source.stat().st_mode & 0o1777
    if source.is_dir():
        tar.addfile(_entry(path, tarfile.DIRTYPE, mode))
    else:
        _add_content(tar, path, source, source.stat().st_size, mode)


def _add_content(
    tar: tarfile.TarFile, path: str, content: bytes | Path, size: int, mode: int = 0o644
) -> None:
    entry = _entry(path, tarfile.REGTYPE, mode)
    entry.size = size
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        tar.addfile(entry, file)


def _entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode = kind, mode
    return entry


def _link(path: str, to: str) -> tarfile.TarInfo:
    entry = _entry(path, tarfile.SYMTYPE, 0o777)
    entry.linkname = to
    return entry


def _tar(target: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT)


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
