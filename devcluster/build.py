"""Build the control plane's binaries from their published Go modules, once.

Called by `find` and by `python -m devcluster`. Binaries are written to the user's cache directory,
under a key of their versions, of `go.sum` and of the linker's flags. Invariant: a binary in that
directory is complete, because each is built beside it and then renamed, under a lock that a second
run waits for.
"""

import fcntl
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from devcluster import checkout, go
from devcluster.errors import BuildError

PACKAGES: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "helm": "helm.sh/helm/v3/cmd/helm",
}
"""Binary -> Go package, in the order in which they are built."""

MODULE: Final = "controlplane"
"""The Go module of these packages, in the checkout."""
NEXT_MODULE: Final = "controlplane/next"
"""The Go module of the next Kubernetes, for kinds that the current one lacks."""
NEXT: Final = ("kube-apiserver", "kube-controller-manager")
"""The binaries built from `NEXT_MODULE`."""

OPERATORS: Final = {"jobset": "sigs.k8s.io/jobset", "lws": "sigs.k8s.io/lws/cmd"}
"""Operators that the tests run: binary -> Go package."""
OPERATORS_MODULE: Final = "controlplane/operators"
"""The Go module of the operators."""
NODE_PROGRAMS: Final = {
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "sample-device-plugin": "k8s.io/kubernetes/test/images/sample-device-plugin",
    "dra-test-driver": "k8s.io/kubernetes/test/e2e/dra/test-driver",
}
"""Programs of a real node that are built from `MODULE`."""
_CONTAINERD: Final = "github.com/containerd/containerd/v2"
_CNI: Final = "github.com/containernetworking/plugins"
_RUNC: Final = "github.com/opencontainers/runc"
CONTAINER_PROGRAMS: Final = {
    "containerd": f"{_CONTAINERD}/cmd/containerd",
    "containerd-shim-runc-v2": f"{_CONTAINERD}/cmd/containerd-shim-runc-v2",
    "ctr": f"{_CONTAINERD}/cmd/ctr",
    "runc": _RUNC,
    "bridge": f"{_CNI}/plugins/main/bridge",
    "host-local": f"{_CNI}/plugins/ipam/host-local",
    "loopback": f"{_CNI}/plugins/main/loopback",
}
"""Programs of a real node that run its containers."""
CONTAINERS_MODULE: Final = "controlplane/node"
"""The Go module of these programs: their dependencies are newer than the versions pinned by
Kubernetes.
"""
CHECK_PROGRAMS: Final = {"csi-sanity": "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"}
"""The conformance suite of CSI drivers."""
CHECKS_MODULE: Final = "controlplane/checks"
"""The Go module of this program."""
METRICS_SERVER: Final = "metrics-server"
_METRICS: Final = "sigs.k8s.io/metrics-server"
METRICS_PROGRAMS: Final = {METRICS_SERVER: f"{_METRICS}/cmd/metrics-server"}
"""What `kubectl top` asks."""
METRICS_MODULE: Final = "controlplane/metrics"
"""The Go module of this program: its dependencies are newer than those of Kubernetes."""

_PROGRAMS: Final = (
    PACKAGES | OPERATORS | NODE_PROGRAMS | CONTAINER_PROGRAMS | CHECK_PROGRAMS | METRICS_PROGRAMS
)
_NAMED_AFTER: Final = {
    MODULE: {"": "k8s.io/kubernetes", "etcd-": "go.etcd.io/etcd/server/v3"},
    NEXT_MODULE: {"": "k8s.io/kubernetes"},
    OPERATORS_MODULE: {"jobset-": "sigs.k8s.io/jobset", "lws-": "sigs.k8s.io/lws"},
    CONTAINERS_MODULE: {"containerd-": _CONTAINERD, "runc-": _RUNC},
    CHECKS_MODULE: {"csi-test-": "github.com/kubernetes-csi/csi-test/v5"},
    METRICS_MODULE: {"metrics-server-": _METRICS},
}
"""Go module -> parts of the name of its directory: prefix -> module, for its version."""

Report = Callable[[str], None]
"""Takes one line of progress for people."""


def cache_directory() -> Path:
    """Return the directory of built binaries."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bindery" / "controlplane"


def key(module: str = MODULE) -> str:
    """Return a name for the directory of a module's binaries, derived from all their inputs."""
    source = checkout.ROOT / module
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((source / name).read_bytes())
    digest.update(_linker_flags(module).encode())
    versions = [
        prefix + checkout.module_version(named, module)
        for prefix, named in _NAMED_AFTER[module].items()
    ]
    return "-".join([*versions, digest.hexdigest()[:8]])


def are_built(names: Sequence[str], module: str = MODULE) -> bool:
    """Return whether all binaries `names` exist."""
    directory = cache_directory() / key(module)
    return all((directory / name).exists() for name in names)


def binaries(names: Sequence[str], report: Report, module: str = MODULE) -> dict[str, Path]:
    """Return the paths of the binaries `names`, after building missing ones.

    Raises:
        BuildError: a binary cannot be built.
    """
    directory = cache_directory() / key(module)
    paths = {name: directory / name for name in names}
    if all(path.exists() for path in paths.values()):
        return paths
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / "lock", report):
        missing = [name for name, path in paths.items() if not path.exists()]
        if missing:
            _build(missing, directory, report, module)
    return paths


def _build(names: Sequence[str], directory: Path, report: Report, module: str) -> None:
    compiler = go.find(cache_directory(), report)
    minutes = "six" if module in (MODULE, NEXT_MODULE) else "two"
    names_text = ", ".join(names)
    report(f"building {names_text} into {directory}: about {minutes} minutes on two cores, once")
    for number, name in enumerate(names, start=1):
        report(f"building {name} ({number} of {len(names)})")
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            target = Path(scratch) / name
            _compile(compiler, _PROGRAMS[name], target, module)
            target.replace(directory / name)
        report(f"built {name} in {time.monotonic() - begin:.0f} s")


def _compile(compiler: Path, package: str, target: Path, module: str) -> None:
    flags = _linker_flags(module)
    arguments = ["build", "-trimpath", "-ldflags", flags, "-o", str(target)]
    environment = go.environment()
    if package == _RUNC:
        require_c()
        arguments += ["-tags", "seccomp"]
        environment["CGO_ENABLED"] = "1"
    result = subprocess.run(  # noqa: S603  constant arguments
        [str(compiler), *arguments, package],
        cwd=checkout.ROOT / module,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise BuildError(f"go build {package} failed:\n{result.stderr.strip()[-4000:]}")


def require_c() -> None:
    """Check that runc can be built here: runc is partly written in C, and uses libseccomp.

    Raises:
        BuildError: a compiler, pkg-config or the headers are missing; the text names the packages.
    """
    missing = [
        package
        for package, command in (
            ("gcc", ["gcc", "--version"]),
            ("pkg-config", ["pkg-config", "--version"]),
            ("libseccomp-dev", ["pkg-config", "--atleast-version=2.5", "libseccomp"]),
        )
        if not _succeeds(command)
    ]
    if missing:
        raise BuildError(
            f"runc cannot be built without {', '.join(missing)}; on Debian: "
            f"apt-get install {' '.join(missing)}"
        )


def _succeeds(command: Sequence[str]) -> bool:
    try:
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603  constant
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _linker_flags(module: str) -> str:
    """Return flags that strip symbols and write the version into the binaries."""
    if module in (OPERATORS_MODULE, CHECKS_MODULE, METRICS_MODULE):
        return "-s -w"
    if module == CONTAINERS_MODULE:
        containerd, runc = (checkout.module_version(each, module) for each in (_CONTAINERD, _RUNC))
        return f"-s -w -X {_CONTAINERD}/version.Version={containerd} -X main.version={runc[1:]}"
    version = checkout.module_version("k8s.io/kubernetes", module)
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    stamps = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items()]
    # helm takes the Kubernetes version for rendering without a cluster from its own build.
    for package in ("chartutil", "lint/rules"):
        stamps.append(f"-X helm.sh/helm/v3/pkg/{package}.k8sVersionMajor={major}")
        stamps.append(f"-X helm.sh/helm/v3/pkg/{package}.k8sVersionMinor={minor}")
    return " ".join(["-s", "-w", *stamps])


@contextmanager
def locked(path: Path, report: Report) -> Iterator[None]:
    """Hold the lock file `path`; the kernel releases the lock however this process ends."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another run builds the control plane; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
