"""Downloads published Go modules: definitions of kinds of other projects.

Used by the tests. `go` downloads and keeps a module. A module is used only if its content has the
checksum in this file or in `controlplane/operators/go.sum`.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devcluster import build, checkout, go
from devcluster.build import Report
from devcluster.errors import BuildError


@dataclass(frozen=True)
class Published:
    """A directory of a Go module."""

    module: str
    directory: str
    version: str = ""
    """Default: the version in `controlplane/operators/go.mod`."""
    checksum: str = ""
    """Checksum in the form of a go.sum."""

    def fetch(self, report: Report) -> Path:
        """Return the directory; download the module if needed.

        Raises:
            BuildError: the module cannot be downloaded, or has another checksum.
        """
        version = self.version or checkout.module_version(self.module, build.OPERATORS_MODULE)
        found = _download(f"{self.module}@{version}", report)
        if found["Sum"] != (self.checksum or _recorded(self.module, version)):
            raise BuildError(f"{self.module}@{version} has the checksum {found['Sum']}")
        return Path(found["Dir"]) / self.directory


JOBSET: Final = Published("sigs.k8s.io/jobset", "config/components")
LWS: Final = Published("sigs.k8s.io/lws", "config")
DEFINITIONS: Final = {
    "JobSet": Published("sigs.k8s.io/jobset", "config/components/crd/bases"),
    "LeaderWorkerSet": Published("sigs.k8s.io/lws", "config/crd/bases"),
    "Kubeflow training": Published(
        "github.com/kubeflow/training-operator",
        "manifests/base/crds",
        "v1.9.3",
        "h1:aaSHqskOtCY8Dn8sVd+l9p5XAczW6O0nYMPjVLAw/lc=",
    ),
    "Kubeflow trainer": Published(
        "github.com/kubeflow/trainer/v2",
        "manifests/base/crds",
        "v2.1.0",
        "h1:jRABD9ZYToamNH2atHze3L/VC/v6KCAqUEqsOQOjVTg=",
    ),
    "KubeRay": Published(
        "github.com/ray-project/kuberay/ray-operator",
        "config/crd/bases",
        "v1.4.2",
        "h1:A4tGzbIky8sInAUxZBdBb+rrpZ7fbqoxdsOtm559Zqg=",
    ),
    "AppWrapper": Published(
        "github.com/project-codeflare/appwrapper",
        "config/crd/bases",
        "v1.1.2",
        "h1:iEEyYGSDXOxMXc/AZEvTDDXy1DNi+cWUQ93uM6XAXJc=",
    ),
    "MPI operator": Published(
        "github.com/kubeflow/mpi-operator",
        "manifests/base",
        "v0.6.0",
        "h1:RzzG03oyQIiHe/SH2k19N+Hp4QkxEsG2l9G1T7US+ys=",
    ),
}
"""Definitions of the kinds of operators. MPIJob is defined twice, by the training operator (v1) and
by the MPI operator (v2beta1): a cluster has only one of them."""

NODE_TOPOLOGY: Final = Published(
    "github.com/k8stopologyawareschedwg/noderesourcetopology-api",
    "manifests",
    "v0.1.3",
    "h1:aXkBkkcxBYmr9anRPeaz68tvP2bX2HutrGgqr4hoXE4=",
)
"""The file crd.yaml defines NodeResourceTopology."""
POD_FINGERPRINT: Final = Published(
    "github.com/k8stopologyawareschedwg/podfingerprint",
    "testdata",
    "v0.2.2",
    "h1:iFHPfZInM9pz2neye5RdmORMp1hPmte1EGJYpOOzZVg=",
)
"""The file pods.json has pods with known fingerprints."""


def definition_files(names: Sequence[str], report: Report) -> list[Path]:
    """Return the files with the definitions of these operators.

    Raises:
        BuildError: a module cannot be downloaded.
    """
    directories = [DEFINITIONS[name].fetch(report) for name in names]
    return [
        file
        for directory in directories
        for file in sorted(directory.glob("*.yaml"))
        if file.name != "kustomization.yaml"
    ]


def _download(module: str, report: Report) -> dict[str, str]:
    compiler = go.find(build.cache_directory(), report)
    result = subprocess.run(  # noqa: S603  constant arguments
        [str(compiler), "mod", "download", "-json", module],
        cwd=checkout.ROOT / build.OPERATORS_MODULE,
        env=go.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found: dict[str, str] = json.loads(result.stdout)
    except ValueError:
        found = {"Error": result.stderr.strip()}
    if result.returncode != 0 or "Error" in found:
        raise BuildError(f"go mod download {module} failed: {found.get('Error', '')}")
    return found


def _recorded(module: str, version: str) -> str:
    """Return the checksum of a module in the go.sum of the operators."""
    sums = (checkout.ROOT / build.OPERATORS_MODULE / "go.sum").read_text(encoding="utf-8")
    lines = (line.split() for line in sums.splitlines())
    return next(digest for name, of, digest in lines if (name, of) == (module, version))
