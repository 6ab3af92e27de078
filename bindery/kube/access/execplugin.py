"""Credentials from a command named in a kubeconfig, such as a cloud provider's plugin.

Run by `access.credentials`. The protocol is `client.authentication.k8s.io/v1` and `/v1beta1`,
`ExecCredential` (https://kubernetes.io/docs/reference/access-authn-authz/authentication/).
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bindery.api.times import seconds
from bindery.kube.access.kubeconfig import Context, Entry

_SHOWN: Final = 300
"""Maximum number of characters of a failed plugin's output in an error."""

_CLUSTER_INFO: Final = (
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority-data",
    "proxy-url",
)
"""Fields about the cluster that a plugin may request (`provideClusterInfo`)."""


class Credential(msgspec.Struct, frozen=True, rename="camel"):
    """`ExecCredentialStatus`: the credentials from a plugin."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None

    @property
    def expires(self) -> float | None:
        """Expiry in seconds since the epoch; None if unknown."""
        return seconds(self.expiration_timestamp)


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: Credential | None = None


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Plugin(msgspec.Struct, rename="camel"):
    """`ExecConfig`."""

    api_version: str
    command: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False


async def ask(user: Entry, context: Context) -> Credential:
    """Run the plugin of `user` and return its credentials.

    Raises:
        ConfigurationError: the plugin does not exist, fails, or prints something else.
    """
    try:
        plugin = msgspec.convert(user.value["exec"], _Plugin)
    except msgspec.ValidationError as error:
        raise user.error(f"exec: {error}") from error
    output = await _run(user, plugin, _request(plugin, context))
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except msgspec.DecodeError as error:
        raise user.error(f"the exec plugin {plugin.command} returned no credential") from error
    if answer.kind != "ExecCredential" or answer.api_version != plugin.api_version:
        text = f"returned {answer.kind} of {answer.api_version}, not of {plugin.api_version}"
        raise user.error(f"the exec plugin {plugin.command} {text}")
    status = answer.status
    if status is None or not (status.token or status.client_certificate_data):
        raise user.error(
            f"the exec plugin {plugin.command} returned neither a token nor a certificate"
        )
    return status


def _request(plugin: _Plugin, context: Context) -> dict[str, Any]:
    """Return the `ExecCredential` that is passed to the plugin."""
    spec: dict[str, Any] = {"interactive": _is_interactive(plugin)}
    if plugin.provide_cluster_info:
        cluster = context.cluster.value
        spec["cluster"] = {name: cluster[name] for name in _CLUSTER_INFO if name in cluster}
    return {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}


def _is_interactive(plugin: _Plugin) -> bool:
    return plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()


async def _run(user: Entry, plugin: _Plugin, request: Mapping[str, Any]) -> bytes:
    command = plugin.command
    if os.sep in command:  # relative to the kubeconfig, as client-go resolves it
        command = str(user.file.parent / command)
    given = {each.name: each.value for each in plugin.env or ()}
    # A plugin that interacts with the user, such as one that prints a login code, uses stderr.
    talks = _is_interactive(plugin)
    try:
        process = await asyncio.create_subprocess_exec(
            command,
            *(plugin.args or ()),
            env={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            stdin=None if talks else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if talks else asyncio.subprocess.PIPE,
        )
    except OSError as error:
        hint = " ".join(plugin.install_hint.split())
        text = f"the exec plugin {plugin.command} cannot be run: {error.strerror}"
        raise user.error(f"{text}; {hint}" if hint else text) from error
    output, errors = await process.communicate()
    if process.returncode != 0:
        shown = " ".join(errors.decode(errors="replace").split())[:_SHOWN]
        raise user.error(
            f"the exec plugin {plugin.command} ended with {process.returncode}: {shown}"
        )
    return output
