"""`make protocols`: generates the messages of the kubelet's sockets from their definitions.

The definitions are those of the module `k8s.io/kubelet` in the version of the control plane. The
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

_MODULE: Final = "k8s.io/kubelet"
_PACKAGE: Final = "bindery/nodeagent/sockets/definitions"
_FILES: Final = {
    "deviceplugin": "pkg/apis/deviceplugin/v1beta1/api.proto",
    "dra": "pkg/apis/dra/v1/api.proto",
    "drahealth": "pkg/apis/dra-health/v1alpha1/api.proto",
    "pluginregistration": "pkg/apis/pluginregistration/v1/api.proto",
    "podresources": "pkg/apis/podresources/v1/api.proto",
}
"""Name of the generated module -> the definition in the module of the kubelet."""


def main() -> None:
    """Generate all modules."""
    source = _source()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / _PACKAGE
        place.mkdir(parents=True)
        for name, path in _FILES.items():
            shutil.copyfile(source / path, place / f"{name}.proto")
        output = Path.cwd()
        subprocess.run(  # noqa: S603  constant arguments
            [
                sys.executable, "-m", "grpc_tools.protoc", f"-I{directory}",
                f"--python_out={output}", f"--pyi_out={output}",
                *(str(place / f"{name}.proto") for name in _FILES),
            ],
            check=True,
        )  # fmt: skip


def _source() -> Path:
    """Return the directory of the kubelet's module, which is downloaded if it is not there."""
    answer = subprocess.run(  # noqa: S603  constant arguments
        [str(go.find(build.cache_directory(), print)), "mod", "download", "-json", _MODULE],
        cwd=checkout.ROOT / build.MODULE,
        env=go.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(json.loads(answer.stdout)["Dir"])


if __name__ == "__main__":
    main()
