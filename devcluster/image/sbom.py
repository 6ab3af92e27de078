"""The software bill of materials of an image, in CycloneDX's JSON.

uv writes the part about Python, with the hashes of its lock file. The packages of Debian and the
image itself are added here. The bill has no time stamp, so that the same image has the same bill.
"""

import json
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from devcluster.image import oci, parts
from devcluster.image.parts import Part

_NAMESPACE: Final = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
"""Namespace of identifiers made from URLs (RFC 9562)."""


def write(path: Path, image: oci.Image, exported: str, root: Path, found: Iterable[Part]) -> Path:
    """Write the bill of `image` to `path` and return it.

    `exported`: the dependencies in CycloneDX's JSON, as uv writes them. `root`: files of the image.
    `found`: its parts.
    """
    document: dict[str, Any] = json.loads(exported)
    found = list(found)
    # The lock file also has versions for other systems and other releases of Python.
    installed = {(_normal(p.name), p.version) for p in found if p.kind == parts.PYTHON}
    debian = sorted((each for each in found if each.kind == parts.DEBIAN), key=lambda p: p.name)
    distribution = _distribution(root)
    of_python = [
        each
        for each in document["components"]
        if (_normal(each["name"]), each["version"]) in installed
    ]
    digest = image.manifest.digest
    own = document["metadata"]["component"]
    document["serialNumber"] = uuid.uuid5(_NAMESPACE, f"{image.name}@{digest}").urn
    document["metadata"].pop("timestamp", None)
    document["metadata"]["component"] = {
        "type": "container",
        "bom-ref": image.name,
        "name": image.name,
        "version": digest,
    }
    document["components"] = [own, *of_python, *(_component(each, distribution) for each in debian)]
    kept = {each["bom-ref"] for each in document["components"]}
    document["dependencies"] = [
        {**each, "dependsOn": [to for to in each.get("dependsOn", ()) if to in kept]}
        for each in document.get("dependencies", ())
        if each["ref"] in kept
    ]
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path


def _component(package: Part, distribution: str) -> dict[str, Any]:
    version = quote(package.version, safe="")
    url = f"pkg:deb/{distribution}/{quote(package.name)}@{version}?arch={oci.architecture()}"
    return {
        "type": "library",
        "bom-ref": url,
        "name": package.name,
        "version": package.version,
        "purl": url,
    }


def _distribution(root: Path) -> str:
    """Return the name of the distribution of an image, such as `debian`."""
    text = (root / "usr/lib/os-release").read_text(encoding="utf-8")
    found = re.search(r'^ID="?([a-z0-9._-]+)"?$', text, re.MULTILINE)
    return found[1] if found else "unknown"


def _normal(name: str) -> str:
    """Return the name of a package of Python as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
