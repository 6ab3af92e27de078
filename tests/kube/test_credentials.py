"""Credentials from kubeconfigs of every kind, on a real API server."""

import base64
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bindery.kube.access import credentials
from bindery.kube.access.credentials import Credentials
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects.resources import NAMESPACES
from devcluster.plane import ControlPlane


@pytest.fixture
def admin(control_plane: ControlPlane) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(control_plane.admin_kubeconfig.read_text())
    return found


def token_of(kubeconfig: dict[str, Any]) -> str:
    return str(kubeconfig["users"][0]["user"]["token"])


def write(kubeconfig: dict[str, Any], user: dict[str, Any], path: Path) -> Path:
    kubeconfig["contexts"][0]["context"]["user"] = "u"
    path.write_text(yaml.safe_dump({**kubeconfig, "users": [{"name": "u", "user": user}]}))
    return path


@pytest.mark.e2e
async def test_a_changed_token_file_is_read_again_when_its_token_is_rejected(
    admin: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("expired")
    kubeconfig = write(admin, {"tokenFile": str(file)}, tmp_path / "kubeconfig")
    async with Client.connect(kubeconfig, user_agent="bindery-test/0") as client:
        with pytest.raises(ForbiddenError, match="401"):
            await client.list(NAMESPACES)
        file.write_text(token_of(admin))

        assert await client.list(NAMESPACES)


@pytest.mark.e2e
async def test_a_token_file_is_read_again_before_its_token_expires(
    admin: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_RENEW_AFTER_S", 0.0)
    file = tmp_path / "token"
    file.write_text(token_of(admin))
    kubeconfig = write(admin, {"tokenFile": str(file)}, tmp_path / "kubeconfig")
    loaded = await Credentials.load(kubeconfig)
    file.write_text("next")

    await loaded.renew()

    assert loaded.authorization == "Bearer next"


@pytest.mark.e2e
async def test_a_token_stays_in_use_while_its_file_is_missing(
    admin: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_RENEW_AFTER_S", 0.0)
    file = tmp_path / "token"
    file.write_text(token_of(admin))
    kubeconfig = write(admin, {"tokenFile": str(file)}, tmp_path / "kubeconfig")
    async with Client.connect(kubeconfig, user_agent="bindery-test/0") as client:
        file.unlink()

        assert await client.list(NAMESPACES)


@pytest.mark.e2e
async def test_an_exec_plugin_is_run_again_when_its_token_is_rejected(
    admin: dict[str, Any], tmp_path: Path
) -> None:
    """The plugin hands out one token a run: first a stale one, then the administrator's."""
    answers = tmp_path / "answers"
    answers.write_text(f"stale\n{token_of(admin)}\n")
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import json, pathlib\n"
        f"answers = pathlib.Path({str(answers)!r})\n"
        "token, _, rest = answers.read_text().partition('\\n')\n"
        "answers.write_text(rest)\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1',"
        " 'kind': 'ExecCredential', 'status': {'token': token}}))\n"
    )
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(plugin)],
            "interactiveMode": "Never",
        }
    }
    kubeconfig = write(admin, user, tmp_path / "kubeconfig")
    async with Client.connect(kubeconfig, user_agent="bindery-test/0") as client:
        assert await client.list(NAMESPACES)

    assert answers.read_text() == ""


@pytest.mark.e2e
async def test_the_service_account_is_used_in_a_cluster_and_its_token_is_reread(
    admin: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("expired")
    authority = tmp_path / "ca.crt"
    cluster = admin["clusters"][0]["cluster"]
    authority.write_bytes(_authority(cluster))
    host, _, port = cluster["server"].removeprefix("https://").partition(":")
    monkeypatch.setattr(credentials, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    async with Client.connect(user_agent="bindery-test/0") as client:
        token.write_text(token_of(admin))

        assert await client.list(NAMESPACES)
    assert credentials.default_namespace(None) == "default"
    (tmp_path / "namespace").write_text("team\n")
    assert credentials.default_namespace(None) == "team"


def _authority(cluster: dict[str, Any]) -> bytes:
    if "certificate-authority-data" in cluster:
        return base64.b64decode(cluster["certificate-authority-data"])
    return Path(cluster["certificate-authority"]).read_bytes()
