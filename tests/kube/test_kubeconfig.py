"""Kubeconfig files: their meaning, and the one-line error of an invalid file."""

import asyncio
import base64
import json
import os
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from bindery.binder.webhook.certificates import Bundle, Lifetimes, renewed
from bindery.kube.access.credentials import Credentials, default_namespace
from bindery.kube.errors import ConfigurationError

CONFIG = """
current-context: one
clusters:
- {name: c1, cluster: {server: "https://one.example:6443/"}}
- {name: c2, cluster: {server: two.example}}
contexts:
- {name: one, context: {cluster: c1, user: u1}}
- {name: two, context: {cluster: c2}}
- {name: nowhere, context: {user: u1}}
- {name: gone, context: {cluster: c9, user: u1}}
- {name: nobody, context: {cluster: c1, user: u9}}
users:
- {name: u1, user: {token: secret}}
"""


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no configuration of this machine be found."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "config"
    file.write_text(CONFIG)
    return file


def changed(path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    """Write the configuration with another first user, and more about its cluster."""
    document = yaml.safe_load(CONFIG)
    document["users"][0]["user"] = user
    document["clusters"][0]["cluster"] |= cluster or {}
    path.write_text(json.dumps(document))
    return path


def load(path: Path | None, context: str | None = None) -> Credentials:
    return asyncio.run(Credentials.load(path, context))


def problem(path: Path | None, context: str | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(path, context)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_current_context_names_server_and_token(path: Path) -> None:
    loaded = load(path)

    assert (loaded.server, loaded.authorization) == ("https://one.example:6443", "Bearer secret")
    assert loaded.tls is not None
    assert loaded.tls.verify_mode is ssl.CERT_REQUIRED


def test_another_context_can_be_selected_and_needs_no_user(path: Path) -> None:
    loaded = load(path, "two")

    assert (loaded.server, loaded.authorization, loaded.tls) == ("http://two.example", None, None)


def test_the_namespace_is_from_the_context_or_else_the_default(path: Path) -> None:
    path.write_text(CONFIG.replace("{cluster: c2}", "{cluster: c2, namespace: team}"))

    assert default_namespace(path, "two") == "team"
    assert default_namespace(path) == "default"


def test_the_first_of_several_files_with_a_name_is_used(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    first.write_text("current-context: two\nusers:\n- {name: u1, user: {token: other}}\n")
    monkeypatch.setenv(
        "KUBECONFIG", os.pathsep.join([str(tmp_path / "none"), str(first), str(path)])
    )

    assert load(None).server == "http://two.example"
    assert load(None, "one").authorization == "Bearer other"


def test_the_file_in_the_home_directory_is_the_default(path: Path, tmp_path: Path) -> None:
    default = tmp_path / "home" / ".kube" / "config"
    assert f"there is no kubeconfig at {default}" in problem(None)
    default.parent.mkdir(parents=True)
    default.write_text(path.read_text())

    assert load(None).server == "https://one.example:6443"


def test_paths_are_relative_to_their_kubeconfig(path: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("fresh\n")
    pair = _pair(tmp_path)
    cluster = {
        "certificate-authority": "tls.crt",
        "tls-server-name": "inner",
        "proxy-url": "http://p",
    }
    changed(path, {"tokenFile": "token", **pair}, cluster)

    loaded = load(path)

    assert loaded.authorization == "Bearer fresh"
    assert (loaded.tls_server_name, loaded.proxy) == ("inner", "http://p")
    assert loaded.tls is not None
    assert len(loaded.tls.get_ca_certs()) <= 1  # the machine's own are not trusted


def test_data_precedes_a_path_and_leaves_no_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    pair = _pair(tmp_path)
    data = {f"{key}-data": _base64(tmp_path / name) for key, name in pair.items()}
    changed(path, {**data, "client-certificate": "none", "username": "a", "password": "b"})

    loaded = load(path)

    assert loaded.authorization == f"Basic {base64.b64encode(b'a:b').decode()}"
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no current-context"),
        ("clusters: [", "not YAML: while parsing"),
        ("- a\n", "a mapping with clusters is expected"),
        ("clusters: {a: b}", "clusters is not a list"),
        ("users: [a]", "an entry of users is not a mapping"),
        ("current-context: a", "there is no context called a"),
    ],
)
def test_a_file_other_than_a_kubeconfig_is_a_one_line_error(
    path: Path, text: str, message: str
) -> None:
    path.write_text(text)

    assert problem(path).startswith(f"kubeconfig {path}: {message}")


def test_an_unreadable_file_is_named_in_the_error(tmp_path: Path) -> None:
    assert problem(tmp_path / "none") == (
        f"kubeconfig {tmp_path / 'none'}: No such file or directory"
    )
    assert problem(tmp_path) == f"kubeconfig {tmp_path}: Is a directory"
    assert problem(Path("/dev/null")) == "kubeconfig /dev/null: there is no current-context"


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ("tow", "there is no context called tow; there are gone, nobody, nowhere, one, two"),
        ("nowhere", "context nowhere: the context names no cluster"),
        ("gone", "there is no cluster called c9; there are c1, c2"),
        ("nobody", "there is no user called u9; there are u1"),
    ],
)
def test_an_unknown_context_is_named_with_the_existing_ones(
    path: Path, context: str, message: str
) -> None:
    assert problem(path, context) == f"kubeconfig {path}: {message}"


@pytest.mark.parametrize(
    ("user", "cluster", "message"),
    [
        ({}, {"certificate-authority": "none.crt"}, "cluster c1: FOLDER/none.crt: No such file"),
        ({}, {"certificate-authority-data": "?"}, "certificate-authority-data is not base64"),
        ({}, {"certificate-authority": "config"}, "certificate-authority: no certificate in PEM"),
        ({}, {"server": ""}, "cluster c1: there is no server"),
        ({}, {"server": 6443}, "cluster c1: server is not a string"),
        ({"client-certificate": "config"}, {}, "client-certificate and client-key go together"),
        (
            {"client-certificate": "config", "client-key": "config"},
            {},
            "user u1: client-certificate and client-key: no matching pair in PEM",
        ),
        ({"tokenFile": "none"}, {}, "token file FOLDER/none: No such file or directory"),
        ({"tokenFile": "empty"}, {}, "token file FOLDER/empty: it is empty"),
        ({"exec": {"command": "x"}}, {}, "user u1: exec: Object missing required field"),
    ],
)
def test_an_invalid_field_of_a_kubeconfig_is_a_one_line_error(
    path: Path, user: dict[str, Any], cluster: dict[str, Any], message: str
) -> None:
    (path.parent / "empty").touch()

    said = problem(changed(path, user, cluster))

    assert message.replace("FOLDER", str(path.parent)) in said


V1 = "client.authentication.k8s.io/v1"


def plugin(script: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": V1, "command": sys.executable, "args": ["-c", script], **more}}


def credential(**status: str) -> str:
    answer = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(answer)!r})"


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (
            {"exec": {"apiVersion": V1, "command": "no-such-plugin", "installHint": "get\nit"}},
            "the exec plugin no-such-plugin cannot be run: No such file or directory; get it",
        ),
        (plugin("import sys; sys.exit('log in\\nfirst')"), "ended with 1: log in first"),
        (plugin("print('hello')"), "returned no credential"),
        (plugin("print('{}')"), "returned  of , not of client.authentication.k8s.io/v1"),
        (plugin(credential()), "returned neither a token nor a certificate"),
        (plugin(credential(clientCertificateData="x")), "no matching pair in PEM"),
    ],
)
def test_an_exec_plugin_without_output_is_a_one_line_error(
    path: Path, user: dict[str, Any], message: str
) -> None:
    assert message in problem(changed(path, user))


def test_an_exec_plugin_gets_its_environment_and_its_token_is_used(
    path: Path, tmp_path: Path
) -> None:
    script = (
        "import json, os, pathlib\n"
        f"told = pathlib.Path({str(tmp_path / 'told')!r})\n"
        "told.write_text(os.environ['KUBERNETES_EXEC_INFO'] + os.environ['EXTRA'])\n"
        f"{credential(token='given')}"
    )
    user = plugin(script, env=[{"name": "EXTRA", "value": "!"}], provideClusterInfo=True)

    loaded = load(changed(path, user))

    assert loaded.authorization == "Bearer given"
    told = json.loads((tmp_path / "told").read_text().removesuffix("!"))
    assert told["spec"]["cluster"]["server"] == "https://one.example:6443/"


def test_an_exec_plugin_may_return_a_certificate(path: Path, tmp_path: Path) -> None:
    names = _pair(tmp_path)
    certificate, key = ((tmp_path / name).read_text() for name in names.values())
    user = plugin(credential(clientCertificateData=certificate, clientKeyData=key))

    loaded = load(changed(path, user))

    assert loaded.authorization is None
    assert loaded.tls is not None


async def renewed_twice(loaded: Credentials) -> None:
    await loaded.renew()
    await loaded.renew()


def test_an_exec_plugin_is_run_again_only_when_its_token_expires(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bindery.kube.access.credentials._RENEW_AFTER_S", 0.0)
    runs = tmp_path / "runs"
    answers = {
        "lasting": credential(token="t", expirationTimestamp="2999-01-01T00:00:00Z"),
        "endless": credential(token="t"),
        "ended": credential(token="t", expirationTimestamp="2001-01-01T00:00:00Z"),
    }
    counts = {}
    for name, answer in answers.items():
        runs.write_text("")
        loaded = load(changed(path, plugin(f"open({str(runs)!r}, 'a').write('.')\n{answer}")))
        asyncio.run(renewed_twice(loaded))
        counts[name] = len(runs.read_text())

    assert (counts["lasting"], counts["endless"]) == (1, 1)
    assert counts["ended"] > 1


def test_a_token_of_openid_connect_is_used_until_it_expires(path: Path) -> None:
    parts = [{"alg": "none"}, {"exp": 32503680000}, {}]
    token = ".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).decode() for p in parts)
    token = token.replace("=", "")
    provider = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}

    assert load(changed(path, provider)).authorization == f"Bearer {token}"


def test_a_provider_without_token_renewal_is_a_one_line_error(path: Path) -> None:
    user = {"auth-provider": {"name": "oidc", "config": {"client-id": "x"}}}

    assert "user u1: auth-provider: oidc: No valid id-token" in problem(changed(path, user))


def _pair(folder: Path) -> dict[str, str]:
    """Write a certificate and its key; return their names as a user has them."""
    bundle = renewed(Bundle.of({}), ["it"], Lifetimes(), time.time()).data()
    (folder / "tls.crt").write_text(bundle["tls.crt"])
    (folder / "tls.key").write_text(bundle["tls.key"])
    return {"client-certificate": "tls.crt", "client-key": "tls.key"}


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
