"""Webhooks as processes on this machine, which the real API server calls by loopback."""

import asyncio
import json
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bindery.api.configuration import BinderConfiguration, PluginConfiguration, WebhookConfiguration
from devcluster import install, kubeconfig
from devcluster.components import Component
from devcluster.plane import ControlPlane
from devcluster.ports import free_port
from devcluster.processes import Command
from tests.administrator import Administrator

_NAME = "bindery-webhook"


@dataclass
class Webhooks:
    """The chart's webhook for one namespace, and processes that serve it."""

    plane: ControlPlane
    namespace: str
    plugins: tuple[PluginConfiguration, ...] = (PluginConfiguration(name="gpusharing"),)
    failure_policy: str = "Fail"
    port: int = field(default_factory=free_port)
    """Where the API server calls."""
    started: list[Component] = field(default_factory=list)

    def install(self) -> Path:
        """Apply the chart's objects; return a kubeconfig with the webhook's own rights."""
        expression = {
            "key": "kubernetes.io/metadata.name",
            "operator": "In",
            "values": [self.namespace],
        }
        values = {
            "workloads": {"enabled": False},
            "webhook": {
                "enabled": True,
                "url": f"https://127.0.0.1:{self.port}",
                "namespaceExpressions": [expression],
                "failurePolicy": self.failure_policy,
            },
        }
        documents = [d for d in install.render(self.plane, values) if _is_of_webhook(d)]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        self.plane.kubectl(
            "apply", "--server-side", "--force-conflicts", "--filename=-", stdin=text
        )
        token = self.plane.kubectl(
            "create", "token", _NAME, f"--namespace={install.NAMESPACE}", "--duration=1h"
        )
        path = self.plane.state_dir / "kubeconfigs" / "webhook.kubeconfig"
        server = kubeconfig.Server.read(self.plane.admin_kubeconfig)
        return kubeconfig.write(path, server, _NAME, token.strip())

    def start(self, access: Path, port: int | None = None, **settings: Any) -> Component:
        """Start a replica; `settings`: of the webhook's configuration."""
        webhook = WebhookConfiguration(
            port=port or self.port, host="127.0.0.1", dns_names=("127.0.0.1",), **settings
        )
        configuration = BinderConfiguration(plugins=self.plugins, webhook=webhook)
        number = len(self.started)
        file = self.plane.state_dir / "configuration" / f"webhook-{self.namespace}-{number}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(configuration.to_wire()), encoding="utf-8")
        health_port = free_port()
        command = [sys.executable, "-m", "bindery.cli.main", "webhook", "run"]
        command += [f"--config={file}", f"--kubeconfig={access}", f"--health-port={health_port}"]
        log = self.plane.state_dir / "logs" / f"webhook-{self.namespace}-{number}.log"
        made = Command(f"webhook-{number}", command, log)
        component = Component(self.plane, made, health_port, tethered=True)
        self.started.append(component)
        return component.wait_ready()

    def remove(self) -> None:
        """Stop the started components, after deleting the configurations of the webhooks."""
        self.delete_configurations()
        # Before the Secret goes, which a replica that runs would make anew.
        for component in self.started:
            component.stop()
        self.plane.kubectl(
            "delete", "secret", _NAME, f"--namespace={install.NAMESPACE}", "--ignore-not-found"
        )

    def delete_configurations(self) -> None:
        kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
        self.plane.kubectl("delete", kinds, _NAME, "--ignore-not-found")

    async def has_secret(self, *, expected: bool) -> bool:
        """Return whether it is as expected that the Secret exists."""
        arguments = ("get", "secrets", f"--namespace={install.NAMESPACE}", "--output=name")
        names = await asyncio.to_thread(self.plane.kubectl, *arguments)
        return (f"secret/{_NAME}" in names.split()) is expected

    def trusted(self) -> str:
        """Return the authorities that the API server trusts for the webhook, in base64."""
        return self.plane.kubectl(
            "get",
            "mutatingwebhookconfigurations",
            _NAME,
            "--output=jsonpath={.webhooks[0].clientConfig.caBundle}",
        )

    async def wait_trusted(self) -> None:
        """Wait until both configurations have an authority."""
        both = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
        path = "--output=jsonpath={.items[*].webhooks[0].clientConfig.caBundle}"
        async with asyncio.timeout(30):
            while True:
                text = await asyncio.to_thread(self.plane.kubectl, "get", both, _NAME, path)
                if len(text.split()) == 2:
                    break
                await asyncio.sleep(0.1)


class OneWebhook:
    """A class of tests that share a namespace and a webhook; it uses the fixture `serving`."""

    @pytest.fixture(scope="class")
    @classmethod
    def namespace(cls, administrator: Administrator) -> Iterator[str]:
        with administrator.fresh_namespace() as name:
            yield name

    @pytest.fixture(scope="class")
    @classmethod
    def serving(cls, control_plane: ControlPlane, namespace: str) -> Iterator[None]:
        webhooks = Webhooks(control_plane, namespace)
        try:
            webhooks.start(webhooks.install())
            asyncio.run(webhooks.wait_trusted())
            yield
        finally:
            webhooks.remove()


async def served_certificate(port: int) -> bytes:
    """Return the certificate that is served on the port, in DER, whoever signed it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    with closing(writer):
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert isinstance(found, bytes)
    return found


def _is_of_webhook(document: Mapping[str, Any]) -> bool:
    return bool(document["metadata"]["name"] == _NAME)
