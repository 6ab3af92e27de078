"""The images of real nodes, imported and never pulled: the sandbox and a busybox."""

import subprocess
from pathlib import Path
from typing import Final

from devcluster.build import Report
from devcluster.image import oci
from devcluster.realnode import debian
from devcluster.realnode.configuration import PAUSE

BUSYBOX: Final = "bindery.dev/busybox:1"


def base(cache: Path, directory: Path, report: Report) -> Path:
    """Return an archive with the images of the sandbox and of a busybox.

    Raises:
        BuildError: the busybox cannot be downloaded.
    """
    busybox = debian.unpacked("busybox-static", cache, report) / "bin/busybox"
    listed = subprocess.run(  # noqa: S603  unpacked by us
        [busybox, "--list"], capture_output=True, text=True, check=True
    )
    root = oci.layer(
        {"bin/busybox": busybox.read_bytes(), "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n"},
        {f"bin/{name}": "busybox" for name in listed.stdout.split() if name != "busybox"},
        {"tmp": 0o1777, "root": 0o700},
    )
    layers = (oci.Layer.of(root),)
    environment = {"Env": ["PATH=/bin"]}
    images = (
        oci.Image(PAUSE, layers, {**environment, "Cmd": ["sleep", "2147483647"]}),
        oci.Image(BUSYBOX, layers, {**environment, "Cmd": ["sh"]}),
    )
    return oci.write(images, directory / "base.tar")
