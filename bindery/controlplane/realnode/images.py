"""Container images without a registry: archives that containerd imports.

An archive is an OCI image layout (image-spec v1.1) in a tar file, with the name of the image as an
annotation of containerd. The same files give the same bytes.
"""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bindery.controlplane.build import Report
from bindery.controlplane.realnode import debian
from bindery.controlplane.realnode.configuration import PAUSE

BUSYBOX: Final = "bindery.dev/busybox:1"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Image:
    """An image with one layer."""

    name: str
    """With a tag."""
    layer: bytes
    """A tar file."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of its containers, as in the OCI image configuration."""


def layer(
    files: Mapping[str, bytes],
    links: Mapping[str, str] | None = None,
    directories: Mapping[str, int] | None = None,
) -> bytes:
    """Return a tar file with programs by path, symbolic links by path, and modes of directories."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, mode in sorted((directories or {}).items()):
            tar.addfile(_entry(path, tarfile.DIRTYPE, mode))
        for path, content in sorted(files.items()):
            entry = _entry(path, tarfile.REGTYPE, 0o755)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for path, to in sorted((links or {}).items()):
            entry = _entry(path, tarfile.SYMTYPE, 0o777)
            entry.linkname = to
            tar.addfile(entry)
    return target.getvalue()


def base(cache: Path, directory: Path, report: Report) -> Path:
    """Return an archive with the image of sandboxes and one of a busybox.

    Raises:
        BuildError: the busybox cannot be had.
    """
    busybox = debian.unpacked("busybox-static", cache, report) / "bin/busybox"
    listed = subprocess.run(  # noqa: S603  unpacked by us
        [busybox, "--list"], capture_output=True, text=True, check=True
    )
    root = layer(
        {"bin/busybox": busybox.read_bytes(), "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n"},
        {f"bin/{name}": "busybox" for name in listed.stdout.split() if name != "busybox"},
        {"tmp": 0o1777, "root": 0o700},
    )
    environment = {"Env": ["PATH=/bin"]}
    images = (
        Image(PAUSE, root, {**environment, "Cmd": ["sleep", "2147483647"]}),
        Image(BUSYBOX, root, {**environment, "Cmd": ["sh"]}),
    )
    return write(images, directory / "base.tar")


def write(images: Iterable[Image], path: Path) -> Path:
    """Write an archive with `images` to `path` and return it."""
    blobs: dict[str, bytes] = {}
    manifests = []
    for image in images:
        descriptor = _described(_manifest(image, blobs), _MANIFEST, blobs)
        annotations = {"io.containerd.image.name": image.name}
        manifests.append({**descriptor, "annotations": annotations})
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        **{f"blobs/sha256/{digest}": content for digest, content in blobs.items()},
    }
    path.write_bytes(layer(files))
    return path


def _manifest(image: Image, blobs: dict[str, bytes]) -> bytes:
    described = _described(image.layer, _LAYER, blobs)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": image.config,
        "rootfs": {"type": "layers", "diff_ids": [described["digest"]]},
    }
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _described(_json(config), _CONFIG, blobs),
            "layers": [described],
        }
    )


def _described(content: bytes, media_type: str, blobs: dict[str, bytes]) -> dict[str, Any]:
    """Add a blob and return its descriptor."""
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode = kind, mode
    return entry


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
