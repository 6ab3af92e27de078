"""Sessions of people: who is logged in, and what each may see, kept in this process alone.

Invariant: a right that was taken away is used for at most `RIGHTS_S` seconds more. A session is
known by a random number in a cookie; the token of the person stays here and is written nowhere.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from bindery.dashboard.rights import Reviewer, Rights

RIGHTS_S: Final = 30.0
"""Seconds for which an answer about rights is used."""
IDLE_S: Final = 3600.0
"""Seconds without a request after which a session ends."""
LONGEST_S: Final = 12 * 3600.0
MOST: Final = 2_000
"""Maximum number of sessions; the one that was idle longest makes room."""


@dataclass(eq=False)
class Session:
    """One person, as long as the cookie or the header with the token comes."""

    user: str
    token: str = field(repr=False)
    begun_s: float
    used_s: float
    fixed: Rights | None = None
    """The rights of the account that reads the cluster; None: by reviews of the token."""
    rights: Rights | None = None
    reviewed_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)


class Sessions:
    """The sessions of this process. `clock` returns seconds that never go back."""

    def __init__(self, reviewer: Reviewer | None, clock: Callable[[], float]) -> None:
        """`reviewer`: None where everybody who gets in has the rights of the reading account."""
        self._reviewer = reviewer
        self._clock = clock
        self._by_id: dict[str, Session] = {}
        self._by_token: dict[bytes, Session] = {}

    @property
    def reviews_tokens(self) -> bool:
        """Whether people log in with tokens of the API server."""
        return self._reviewer is not None

    def __len__(self) -> int:
        return len(self._by_id)

    async def log_in(self, token: str) -> str:
        """Return the id of a new session for the user with `token`.

        Raises:
            ForbiddenError: the API server does not accept the token.
            KubeError: it cannot be asked.
        """
        return self._keep(await self._new(token))

    def let_in(self, user: str, rights: Rights) -> str:
        """Return the id of a new session with the `rights` of the account that reads."""
        now = self._clock()
        return self._keep(Session(user, "", now, now, rights))

    def of_cookie(self, identity: str) -> Session | None:
        """Return the session with the id of a cookie; None if there is none any more."""
        found = self._by_id.get(identity)
        if found is None:
            return None
        if self._has_ended(found):
            del self._by_id[identity]
            return None
        found.used_s = self._clock()
        return found

    async def of_token(self, token: str) -> Session:
        """Return the session of a request that has the token itself, from a proxy.

        Raises:
            ForbiddenError: the API server does not accept the token.
            KubeError: it cannot be asked.
        """
        key = hashlib.sha256(token.encode()).digest()
        found = self._by_token.get(key)
        if found is None or self._has_ended(found):
            found = await self._new(token)
            while len(self._by_token) >= MOST:
                del self._by_token[min(self._by_token, key=lambda k: self._by_token[k].used_s)]
            self._by_token[key] = found
        found.used_s = self._clock()
        return found

    def log_out(self, identity: str) -> None:
        """End the session with the id of a cookie."""
        self._by_id.pop(identity, None)

    async def rights(self, session: Session, namespaces: Collection[str]) -> Rights:
        """Return what the person may see now, at most `RIGHTS_S` old.

        Raises:
            ForbiddenError: the API server does not accept the token any more.
            KubeError: it cannot be asked.
        """
        if session.fixed is not None or self._reviewer is None:
            return session.fixed or Rights(frozenset(), queues=False, nodes=False)
        async with session.lock:
            now = self._clock()
            if session.rights is None or now - session.reviewed_s >= RIGHTS_S:
                session.rights = None  # an error must not leave the old rights in use
                session.rights = await self._reviewer.rights_of(session.token, namespaces)
                session.reviewed_s = now
            return session.rights

    async def _new(self, token: str) -> Session:
        assert self._reviewer is not None, "only where tokens are reviewed"
        user = await self._reviewer.name_of(token)
        now = self._clock()
        return Session(user, token, now, now)

    def _keep(self, session: Session) -> str:
        for identity in [key for key, each in self._by_id.items() if self._has_ended(each)]:
            del self._by_id[identity]
        while len(self._by_id) >= MOST:
            del self._by_id[min(self._by_id, key=lambda key: self._by_id[key].used_s)]
        identity = secrets.token_urlsafe(32)
        self._by_id[identity] = session
        return identity

    def _has_ended(self, session: Session) -> bool:
        now = self._clock()
        return now - session.used_s > IDLE_S or now - session.begun_s > LONGEST_S
