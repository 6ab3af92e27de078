"""Builds the image of Bindery's components, layer by layer.

The layers are the base, the dependencies with the compiled standard library, and Bindery. The first
two are kept in the user's cache directory under a key of all their inputs. Invariant: the same
inputs give the same bytes.
"""

import hashlib
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from devcluster import build as programs
from devcluster import checkout
from devcluster.build import Report
from devcluster.errors import BuildError
from devcluster.image import oci, packages, parts, sbom
from devcluster.image.packages import Packages
from devcluster.image.parts import Part
from devcluster.image.python import HOME, Python

USER: Final = 65532
_PLATFORM: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"
_UNUSED: Final = ("kubernetes/aio",)
"""Unused packages in dependencies: a second client of Kubernetes, of 40 MB."""
_NOT_COMPILED: Final = r"/site-packages/kubernetes/"
"""Not compiled: only commands with certain kubeconfigs import it, and no pod does. Compiled modules
would add 50 MB.
"""
_INPUTS: Final = ("build.py", "oci.py", "packages.py", "python.py")


@dataclass(frozen=True)
class Built:
    """An image that was built."""

    image: oci.Image
    archive: Path
    materials: Path
    """The software bill of materials, in CycloneDX's JSON."""
    parts: tuple[Part, ...]
    """All parts, the largest first."""

    @property
    def size(self) -> int:
        """Size of the unpacked files, in bytes."""
        return sum(each.size for each in self.parts)


def build(
    name: str, directory: Path, report: Report, base: str = "", cache: Path | None = None
) -> Built:
    """Build the image `name` and write its archive and its bill of materials into `directory`.

    `base`: an OCI archive, or a name in a registry, in place of Debian's packages. `cache`: a cache
    directory in place of the user's.

    Raises:
        BuildError: the image cannot be built; the text has the reason.
    """
    cache = cache or cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with programs.locked(cache / "lock", report), tempfile.TemporaryDirectory(dir=cache) as scratch:
        builder = _Builder(cache, Path(scratch), report)
        lower = builder.lower(base)
        own, own_files = builder.own(lower)
        directory.mkdir(parents=True, exist_ok=True)
        image = oci.Image(name, (*lower.layers, own), _config(lower))
        archive = oci.write([image], directory / "bindery.tar")
        found = parts.of(lower.root, own_files, lower.python)
        materials = sbom.write(
            directory / "bindery.cdx.json", image, builder.export("cyclonedx1.5"), lower.root, found
        )
    return Built(image, archive, materials, tuple(found))


def cache_directory() -> Path:
    """Return the user's cache directory for packages and layers."""
    return programs.cache_directory().parent / "image"


@dataclass(frozen=True)
class _Lower:
    """All layers except the last."""

    layers: tuple[oci.Layer, ...]
    root: Path
    """Directory with the files of the layers."""
    python: Python
    directory: Path
    """Directory with the cached files of this image."""
    environment: Sequence[str]
    """Environment variables of the base."""


class _Builder:
    """Builds with one cache."""

    def __init__(self, cache: Path, scratch: Path, report: Report) -> None:
        self._cache = cache
        self._scratch = scratch
        self._report = report

    def lower(self, base: str) -> _Lower:
        """Return the layers below Bindery's, built where they are missing."""
        requirements = self.export("requirements.txt")
        source = _Registry(self._cache, self._scratch, self._report, base) if base else None
        debian = None if source else Packages(self._cache)
        chosen = debian.chosen() if debian else ()
        named = source.digest() if source else "".join(each.file for each in chosen)
        inputs = [(Path(__file__).parent / name).read_text(encoding="utf-8") for name in _INPUTS]
        digest = hashlib.sha256("\0".join([*inputs, requirements, named]).encode()).hexdigest()
        target = self._cache / f"layers-{digest[:16]}"
        if not target.exists():
            made = self._scratch / "layers"
            (made / "root").mkdir(parents=True)
            if debian is not None:
                debian.download(self._report)
                fill(made / "root", debian, chosen)
                oci.pack(made / "root", made / "base.tar")
            elif source is not None:
                oci.unpack(source.image, made / "root")
            self._add_dependencies(made, requirements)
            for old in self._cache.glob("layers-*"):
                shutil.rmtree(old)
            made.rename(target)
        return _found(target, source)

    def own(self, lower: _Lower) -> tuple[oci.Layer, Path]:
        """Return the layer with Bindery itself, and a directory with its files."""
        wheel = self._wheel()
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()[:16]
        target = lower.directory / f"own-{digest}"
        if not target.exists():
            made = self._scratch / "own"
            site = made / "root" / lower.python.packages
            site.mkdir(parents=True)
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
            self._report("compiling Bindery")
            lower.python.compile(lower.python.packages, made / "root")
            oci.pack(made / "root", made / "layer.tar")
            for old in lower.directory.glob("own-*"):
                shutil.rmtree(old)
            made.rename(target)
        return oci.Layer.of(target / "layer.tar"), target / "root"

    def export(self, form: str) -> str:
        """Return the locked dependencies of `uv.lock` in one of uv's forms, with those of nodes."""
        return _run([_uv(), "export", "--quiet", "--frozen", "--no-emit-project", "--no-header",
                     "--extra=node", f"--format={form}",
                     "--preview-features=sbom-export"])  # fmt: skip

    def _add_dependencies(self, made: Path, requirements: str) -> None:
        """Install the locked dependencies into the root, compile them, write the second layer."""
        root = made / "root"
        before = oci.paths(root)
        python = Python(root)
        python.make_environment()
        locked = self._scratch / "requirements.txt"
        locked.write_text(requirements, encoding="utf-8")
        site = root / python.packages
        self._report("installing the locked dependencies")
        _run([
            _uv(), "pip", "install", "--quiet", "--require-hashes", "--no-deps",
            "--only-binary=:all:", f"--python-version={python.version}",
            f"--python-platform={_PLATFORM[oci.architecture()]}-unknown-linux-gnu",
            f"--target={site}", "--link-mode=copy", f"--requirements={locked}",
        ])  # fmt: skip
        _remove_scripts(site)
        (site / ".lock").unlink(missing_ok=True)
        for name in _UNUSED:
            shutil.rmtree(site / name)
        self._report("compiling the standard library and the dependencies")
        with ThreadPoolExecutor(2) as pool:
            done = [
                pool.submit(python.compile, python.library, root),
                pool.submit(python.compile, python.packages, root, _NOT_COMPILED),
            ]
        for each in done:
            each.result()
        oci.pack(root, made / "dependencies.tar", before)

    def _wheel(self) -> Path:
        """Return a wheel of this checkout; its build tools are locked in `uv.lock`."""
        _run([_uv(), "build", "--quiet", "--wheel", "--no-build-isolation",
              f"--out-dir={self._scratch}", str(checkout.ROOT)])  # fmt: skip
        return next(self._scratch.glob("*.whl"))


class _Registry:
    """A base that is an image, from an archive or from a registry."""

    def __init__(self, cache: Path, scratch: Path, report: Report, name: str) -> None:
        archive = Path(name)
        if not archive.exists():
            archive = scratch / "base.tar"
            if shutil.which("skopeo") is None:
                raise BuildError(
                    f"skopeo fetches the base {name} from its registry, and is not here "
                    "(Debian: apt-get install skopeo); an OCI archive works without"
                )
            report(f"fetching {name}")
            _run(["skopeo", "copy", "--quiet", f"docker://{name}", f"oci-archive:{archive}"])
        # The archive of the image takes the base's layers from here.
        self.image = oci.read(archive, scratch / "base")
        self._cache = cache

    def digest(self) -> str:
        """Return the identity of the base's content."""
        return self.image.configuration.digest


def _found(directory: Path, source: _Registry | None) -> _Lower:
    dependencies = oci.Layer.of(directory / "dependencies.tar")
    root = directory / "root"
    if source is None:
        base: tuple[oci.Layer, ...] = (oci.Layer.of(directory / "base.tar"),)
        environment = ["PATH=/usr/local/bin:/usr/bin:/bin", f"SSL_CERT_FILE=/{_CERTIFICATES}"]
    else:
        base, environment = source.image.layers, source.image.config.get("Env", [])
    return _Lower((*base, dependencies), root, Python(root), directory, environment)


def fill(root: Path, debian: Packages, chosen: Sequence[packages.Package]) -> None:
    """Unpack Debian's packages, and write what their installation would have written."""
    packages.prepare(root)
    for package in chosen:
        debian.unpack(package, root)
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    (root / _CERTIFICATES).parent.mkdir(parents=True, exist_ok=True)
    (root / _CERTIFICATES).write_bytes(b"".join(each.read_bytes() for each in authorities))
    files = {
        "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\n"
        f"nonroot:x:{USER}:{USER}:nonroot:/home/nonroot:/sbin/nologin\n",
        "etc/group": f"root:x:0:\nnonroot:x:{USER}:\n",
        "etc/nsswitch.conf": "hosts: files dns\n",
    }
    for path, text in files.items():
        (root / path).write_text(text, encoding="utf-8")
    (root / "home/nonroot").mkdir(parents=True)


def _remove_scripts(site: Path) -> None:
    """Remove the dependencies' commands and their hashes: they contain the path of the Python used
    here.
    """
    shutil.rmtree(site / "bin", ignore_errors=True)
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = "".join(line for line in lines if not line.startswith("bin/"))
        record.write_text(kept, encoding="utf-8")


def _config(lower: _Lower) -> dict[str, Any]:
    path = next((each for each in lower.environment if each.startswith("PATH=")), "PATH=")
    rest = [each for each in lower.environment if each != path]
    return {
        "User": f"{USER}:{USER}",
        "Env": [
            f"PATH=/{HOME}/bin:{path.removeprefix('PATH=')}",
            *rest,
            "PYTHONUNBUFFERED=1",
            "PYTHONDONTWRITEBYTECODE=1",
        ],
        "Entrypoint": [f"/{HOME}/bin/bindery"],
        "WorkingDir": "/",
        "Labels": {
            "org.opencontainers.image.title": "bindery",
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    }


def _uv() -> str:
    own = checkout.ROOT / ".tools" / "bin" / "uv"
    found = str(own) if own.exists() else shutil.which("uv")
    if found is None:
        raise BuildError("uv installs the locked dependencies, and is not here: run `make image`")
    return found


def _run(command: list[str]) -> str:
    result = subprocess.run(  # noqa: S603  constant arguments
        command, cwd=checkout.ROOT, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        text = result.stderr.strip()[-2000:]
        raise BuildError(f"{Path(command[0]).name} {command[1]} failed: {text}")
    return result.stdout
