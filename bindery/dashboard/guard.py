"""Who gets in: headers of every answer, the origin of what is posted, cookie and token.

Used by `web` before any page. Nothing here knows a page.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "form-action 'self'",
        "base-uri 'none'",
    )
)
HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Content-Security-Policy": _POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
)
"""On every answer."""
MOST_TOKEN: Final = 16_384
"""Maximum length of a token."""


@dataclass(frozen=True)
class Entrance:
    """Where the page is served, as far as the guard needs to know."""

    is_local: bool
    """Whether only this machine reaches it (`bindery dashboard open`)."""
    is_secure: bool
    """Whether browsers reach it by HTTPS, so that the cookie is sent by HTTPS alone."""
    port: int = 0

    @property
    def cookie(self) -> str:
        """The name of the cookie; on one machine, cookies of all ports are one set."""
        return "__Host-bindery" if self.is_secure else f"bindery-{self.port}"

    def knows_host(self, request: web.Request) -> bool:
        """Return whether the request names this host.

        On a loopback address, a page of another site could otherwise reach it by a name of its own
        that leads to 127.0.0.1.
        """
        if not self.is_local:
            return True
        host = urlsplit(f"//{request.host}").hostname
        return host in ("127.0.0.1", "localhost", "::1")


def is_from_own_page(request: web.Request) -> bool:
    """Return whether a posted form comes from a page of this server.

    Browsers name the origin. A program with a token in the header has no cookie to misuse.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("Origin")
    if origin is not None:
        return urlsplit(origin).netloc == request.host
    return bearer_token(request) is not None


def bearer_token(request: web.Request) -> str | None:
    """Return the token in the header Authorization; None without one that can be used."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and is_token(token) else None


def is_token(text: str) -> bool:
    """Return whether `text` can stand in a header: printable ASCII without spaces."""
    return 0 < len(text) <= MOST_TOKEN and text.isascii() and text.isprintable() and " " not in text


def next_path(text: str) -> str:
    """Return the path to go to after the login: only one of this server."""
    parts = urlsplit(text)
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and not parts.netloc
    return text if is_own and text.isprintable() and "\\" not in text else "/"
