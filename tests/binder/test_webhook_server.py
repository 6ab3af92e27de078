"""The webhook's server, without an API server."""

import pytest

from bindery.binder.webhook.server import WebhookServer
from bindery.observability.listening import LOOPBACK, ListenError, serving


async def test_a_port_in_use_is_named_in_the_error() -> None:
    async with serving([], LOOPBACK, 0) as port:
        with pytest.raises(ListenError, match=f"{LOOPBACK} port {port}: .*in use"):
            async with WebhookServer({}, port, LOOPBACK):
                pass
