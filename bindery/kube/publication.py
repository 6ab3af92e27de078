"""The configuration of a leader, published in an annotation of its Lease.

The scheduler, the binder and the grouper write the annotation at each renewal of their Lease; the
commands plan with it. Invariant: the annotation has at most `MOST_BYTES`, and contains no
credentials of a URL.
"""

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

import bindery
from bindery.api.names import CONFIGURATION_ANNOTATION

if TYPE_CHECKING:
    from bindery.api.base import ApiModel  # pydantic takes longer than a short command may

MOST_BYTES: Final = 16 * 1024
_HASH_DIGITS: Final = 12
_PROBLEM_CHARACTERS: Final = 500
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]*@")


class Publication(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """The configuration of a running component."""

    version: str
    """The version of Bindery of the component; other versions may have other defaults."""
    hash: str
    """Hash of the whole configuration, including defaults."""
    changes: dict[str, Any] | None = None
    """The values that differ from the defaults, by key. None: they exceed `MOST_BYTES`."""
    problem: str | None = None
    """The reason why a later change of the configuration file cannot be used; None without one."""


def configuration_hash(configuration: "ApiModel") -> str:
    """Return a hash of `configuration`; equal for equal values, whether set or default."""
    values = _without_credentials(configuration.model_dump(mode="json", by_alias=True))
    encoded = msgspec.json.encode(values, order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:_HASH_DIGITS]


def annotations(configuration: "ApiModel", problem: str = "") -> dict[str, str]:
    """Return the annotation of a Lease that publishes `configuration`.

    `problem`: the reason why a later change of the file cannot be used, or empty.
    """
    whole = Publication(
        version=bindery.__version__,
        hash=configuration_hash(configuration),
        changes=_without_credentials(configuration.to_wire()),
        problem=_without_credentials(problem)[:_PROBLEM_CHARACTERS] or None,
    )
    encoded = msgspec.json.encode(whole, order="sorted")
    if len(encoded) > MOST_BYTES:
        encoded = msgspec.json.encode(msgspec.structs.replace(whole, changes=None))
    return {CONFIGURATION_ANNOTATION: encoded.decode()}


class Publisher:
    """Returns the annotation of one process; encodes it again only after a change.

    Each renewal of the Lease asks for it, every few seconds.
    """

    def __init__(self) -> None:
        self._configuration: ApiModel | None = None
        self._problem = ""
        self._annotations: dict[str, str] = {}

    def annotations(self, configuration: "ApiModel", problem: str = "") -> dict[str, str]:
        """Return what the function `annotations` does. `configuration` must not change later."""
        if configuration is not self._configuration or problem != self._problem:
            self._annotations = annotations(configuration, problem)
            self._configuration, self._problem = configuration, problem
        return self._annotations


def published(given: dict[str, str]) -> Publication | None:
    """Return the configuration in annotations of a Lease; None if absent or unreadable."""
    text = given.get(CONFIGURATION_ANNOTATION)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Publication)
    except msgspec.DecodeError:
        return None


def _without_credentials(value: Any) -> Any:
    """Return `value` with user and password removed from every URL in it."""
    if isinstance(value, str):
        return _CREDENTIALS.sub("", value)
    if isinstance(value, dict):
        return {key: _without_credentials(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_credentials(each) for each in value]
    return value
