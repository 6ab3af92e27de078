"""The chart's containers as processes of this machine, as a kubelet would start them.

No image and no container engine: `unshare` gives the process a root of its own, in which the
interpreter, the packages and the programs of this machine are mounted read-only, and `setpriv`
takes its rights. It has the user of the pod, which has no entry in /etc/passwd, and no environment
but that of the image, the chart and the kubelet.
"""

import os
import re
import shlex
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from devcluster import checkout, kubeconfig
from devcluster.plane import ControlPlane
from devcluster.processes import Command, Process
from tests.required import lacking

_TOOLS: Final = ("unshare", "setpriv", "chroot", "mount")
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_FILES: Final = ("/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf")
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_READY_S: Final = 120.0
_HEALTH_PORT: Final = 8080


def require_container_tools() -> None:
    """Skip the test on a machine that cannot start such a container."""
    if os.geteuid() != 0:
        lacking("only root can give a process another user and a root of its own")
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        lacking(f"there is no {' and no '.join(missing)} on this machine")


@dataclass(frozen=True)
class Pod:
    """What the process gets from its pod, beside the container."""

    spec: Mapping[str, Any]
    namespace: str
    name: str
    address: str
    """On the loopback interface, its own: the ports of the chart are free there."""
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """What a device plugin adds."""

    @property
    def container(self) -> Mapping[str, Any]:
        """Its only container."""
        (container,) = self.spec["containers"]
        found: Mapping[str, Any] = container
        return found

    def variables(self) -> dict[str, str]:
        """Return the environment that the container names."""
        values = {
            "status.podIP": self.address,
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
        }
        given = {
            each["name"]: each.get("value", "")
            if "valueFrom" not in each
            else values[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in self.container.get("env", ())
        }
        return {**given, **self.environment}

    def arguments(self) -> list[str]:
        """Return the container's arguments, with its variables in them."""
        known = self.variables()
        return [
            re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], each)
            for each in self.container["args"]
        ]


class Container:
    """One running container."""

    def __init__(self, plane: ControlPlane, pod: Pod, directory: Path) -> None:
        """Start it; `directory` is for its files."""
        self._pod = pod
        script = "\n".join(_script(plane, pod, directory))
        shell = shutil.which("sh")
        unshare = shutil.which("unshare")
        assert shell is not None
        assert unshare is not None
        arguments = [unshare, "--mount", "--propagation=private", shell, "-euc", script]
        self.log = directory / "log"
        self.process = Process(Command(pod.name, arguments, self.log), tethered=True)

    def wait_ready(self) -> None:
        """Wait until its readiness probe succeeds."""
        self.process.wait_until(lambda: self.fetch("readyz") is not None, "ready", _READY_S)

    def fetch(self, page: str) -> str | None:
        """Return what it serves at the port of its probes; None: nothing, or an error."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        url = f"http://{self._pod.address}:{_HEALTH_PORT}/{page}"
        try:
            with opener.open(url, timeout=5) as answer:
                return str(answer.read().decode())
        except (OSError, urllib.error.URLError):
            return None


def _script(plane: ControlPlane, pod: Pod, directory: Path) -> Iterator[str]:
    """Yield the commands that make the root, take the rights and become the container."""
    files = directory / "files"
    root = directory / "root"
    for each in (files, root):
        each.mkdir(parents=True)
    yield f"mount -t tmpfs -o mode=0755 root {root}"
    yield f"mkdir -p {root}/proc {root}/dev {root}/etc {root}/var"
    yield f"mount --rbind /proc {root}/proc"
    yield f"mount --rbind /dev {root}/dev"
    for source, target, is_writable in _volumes(plane, pod, files):
        if is_writable:
            yield f"mkdir -p {root}{target}"
            yield f"mount -t tmpfs -o mode=1777 volume {root}{target}"
        else:
            yield from _mounted(root, source, target)
    # After the volumes: this project may itself lie below the container's /tmp.
    for path in _shown():
        yield from _mounted(root, Path(path), path)
    passwd = _written(files / "passwd", "root:x:0:0:root:/root:/bin/sh\n")
    yield from _mounted(root, passwd, "/etc/passwd")
    yield f"mount -o remount,ro {root}"
    context = pod.spec["securityContext"]
    user, group = context["runAsUser"], context.get("runAsGroup", 0)
    server = urlsplit(kubeconfig.Server.read(plane.admin_kubeconfig).url)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "KUBERNETES_SERVICE_HOST": server.hostname or "",
        "KUBERNETES_SERVICE_PORT": str(server.port or 443),
        **pod.variables(),
    }
    command = [
        *("exec", "chroot", str(root), "setpriv", f"--reuid={user}", f"--regid={group}"),
        *("--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"),
        # Taking another user ends the tether to the test.
        *("--pdeathsig=KILL", "env", "-i"),
        *(f"{name}={value}" for name, value in environment.items()),
        *("bindery", *pod.arguments()),
    ]
    yield shlex.join(command)


def _shown() -> list[str]:
    """Return the paths of this machine that the container sees."""
    wanted = [sys.base_prefix, sys.prefix, str(checkout.ROOT), *_SYSTEM, *_FILES]
    there = sorted({each for each in wanted if Path(each).exists()})
    return [each for each in there if not any(Path(other) in Path(each).parents for other in there)]


def _mounted(root: Path, source: Path, target: str) -> Iterator[str]:
    """Yield the commands that show `source` read-only at `target` of the container."""
    if source.is_symlink():
        yield f"ln -s {source.readlink()} {root}{target}"
        return
    inside = f"{root}{target}"
    if source.is_dir():
        yield f"mkdir -p {inside}"
    else:
        yield f"mkdir -p {Path(inside).parent} && touch {inside}"
    yield f"mount --bind {source} {inside}"
    yield f"mount -o remount,bind,ro {inside}"


def _volumes(plane: ControlPlane, pod: Pod, files: Path) -> Iterator[tuple[Path, str, bool]]:
    """Yield what is mounted into the container: the source, the place, whether it is writable."""
    account = pod.spec["serviceAccountName"]
    token = plane.kubectl("create", "token", account, f"--namespace={pod.namespace}")
    secret = files / "serviceaccount"
    _written(secret / "token", token.strip())
    authority = kubeconfig.Server.read(plane.admin_kubeconfig).certificate_authority
    _written(secret / "ca.crt", authority.decode())
    _written(secret / "namespace", pod.namespace)
    yield secret, _ACCOUNT, False
    volumes = {each["name"]: each for each in pod.spec.get("volumes", ())}
    for mount in pod.container.get("volumeMounts", ()):
        volume = volumes[mount["name"]]
        if "configMap" in volume:
            for name, text in pod.config_maps[volume["configMap"]["name"]].items():
                _written(files / mount["name"] / name, text)
            yield files / mount["name"], mount["mountPath"], False
        else:
            assert "emptyDir" in volume, volume
            yield files, mount["mountPath"], True


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
