"""`make protocols`: generates the messages of the kubelet's sockets from their definitions.

The definitions are those of the modules `k8s.io/kubelet` and `k8s.io/cri-api` in the version of the
control plane, and of the Container Storage Interface in the version that this kubelet has. The
generated modules are kept in the repository, so only a new version needs this.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from devcluster import build, checkout, go

_PLUGINS: Final = "bindery/nodeagent/sockets/definitions"
_STORAGE: Final = "bindery/nodeagent/volumes/definitions"
_CSI: Final = "github.com/container-storage-interface/spec"
_RUNTIME: Final = "bindery/nodeagent/containers/definitions"
_FILES: Final = {
    (_PLUGINS, "deviceplugin"): ("k8s.io/kubelet", "pkg/apis/deviceplugin/v1beta1/api.proto"),
    (_PLUGINS, "dra"): ("k8s.io/kubelet", "pkg/apis/dra/v1/api.proto"),
    (_PLUGINS, "drahealth"): ("k8s.io/kubelet", "pkg/apis/dra-health/v1alpha1/api.proto"),
    (_PLUGINS, "pluginregistration"): (
        "k8s.io/kubelet", "pkg/apis/pluginregistration/v1/api.proto",
    ),
    (_PLUGINS, "podresources"): ("k8s.io/kubelet", "pkg/apis/podresources/v1/api.proto"),
    (_STORAGE, "csi"): (_CSI, "csi.proto"),
    (_RUNTIME, "cri"): ("k8s.io/cri-api", "pkg/apis/runtime/v1/api.proto"),
}  # fmt: skip
"""Package and name of the generated module -> the Go module and the definition in it."""


def main() -> None:
    """Generate all modules."""
    sources = {module: _source(module) for module, _ in _FILES.values()}
    with tempfile.TemporaryDirectory() as directory:
        copies = []
        for (package, name), (module, path) in _FILES.items():
            copy = Path(directory) / package / f"{name}.proto"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(sources[module] / path, copy)
            copies.append(str(copy))
        output = Path.cwd()
        subprocess.run(  # noqa: S603  constant arguments
            [
                sys.executable, "-m", "grpc_tools.protoc", f"-I{directory}",
                f"--python_out={output}", f"--pyi_out={output}", *copies,
            ],
            check=True,
        )  # fmt: skip


def _source(module: str) -> Path:
    """Return the directory of a Go module, which is downloaded if it is not there."""
    answer = subprocess.run(  # noqa: S603  constant arguments
        [str(go.find(build.cache_directory(), print)), "mod", "download", "-json", module],
        cwd=checkout.ROOT / build.MODULE,
        env=go.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(json.loads(answer.stdout)["Dir"])


if __name__ == "__main__":
    main()
