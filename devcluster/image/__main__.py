"""Makes the image of Bindery's components."""

import argparse
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from devcluster.errors import BuildError
from devcluster.image import oci
from devcluster.image.build import Built, build

_LARGEST: Final = 10
_EXAMPLES: Final = """examples:
  make image                                   bindery:VERSION from Debian's packages
  make image IMAGE=registry.example/bindery:1  with a name to push it by
  make image BASE=python:3.13-slim             on a base from a registry (needs skopeo)
  make image BASE=base.tar                     on a base in an OCI archive
"""


def main() -> int:
    """Build the image, show its parts, and return the exit code."""
    parser = argparse.ArgumentParser(
        "python -m devcluster.image",
        description="Make the image of Bindery's components, without a container engine.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    name = f"bindery:{metadata.version('bindery')}"
    parser.add_argument("--name", default=name, help=f"name with a tag; default: {name}")
    parser.add_argument("--base", default="", help="another base than Debian's packages")
    parser.add_argument("--output", type=Path, default=Path("build/image"), help="a directory")
    options = parser.parse_args()
    console = Console(stderr=True, highlight=False)
    begin_s = time.monotonic()
    try:
        built = build(options.name, options.output, console.print, options.base)
    except BuildError as error:
        console.print(str(error), style="red", markup=False)
        return 1
    _show(built, time.monotonic() - begin_s)
    return 0


def _show(built: Built, took_s: float) -> None:
    console = Console(highlight=False, width=100)
    layers = len(built.image.layers)
    console.print(
        f"{built.image.name} for linux/{oci.architecture()}: {_megabytes(built.size)} MB unpacked, "
        f"{layers} layers, made in {took_s:.0f} s"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column(f"the {_LARGEST} largest parts")
    table.add_column("version")
    table.add_column("MB", justify="right")
    for part in built.parts[:_LARGEST]:
        table.add_row(part.name, part.version, _megabytes(part.size))
    console.print(table)
    archive, name = built.archive, built.image.name
    for line in (
        f"archive   {archive}",
        f"digest    {built.image.manifest.digest}",
        f"image ID  {built.image.configuration.digest}",
        f"SBOM      {built.materials} (CycloneDX)",
        "",
        "to load it, one of:",
        f"  docker load --input {archive}",
        f"  ctr --namespace k8s.io images import {archive}",
        f"  skopeo copy oci-archive:{archive} docker://{name}",
    ):
        console.print(line, soft_wrap=True, markup=False)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"


if __name__ == "__main__":
    sys.exit(main())
