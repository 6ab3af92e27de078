"""Where the events of BindRequests come from, and what they become.

`term` gets a source as an argument. In production it is `operator`, which runs kopf.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from bindery.api.bindrequest import Phase
from bindery.binder.statements.intake import Intake
from bindery.binder.statements.manager import Malformed
from bindery.kube.objects import reading
from bindery.kube.objects.bindrequests import BindRequest
from bindery.kube.objects.watched import Meta


class RequestSource(Protocol):
    """Watches all BindRequests and passes each change to `translate`."""

    @property
    def is_alive(self) -> bool:
        """Whether it watches."""

    async def run(self) -> None:
        """Watch until cancelled."""


MakeSource = Callable[[Intake], RequestSource]
"""Returns the source of one term, which passes every change to this intake."""


def translate(kind: str | None, raw: Any, intake: Intake) -> None:
    """Translate a watch event into calls of the intake.

    Args:
        kind: ADDED, MODIFIED, DELETED; None: the object existed before the first list.
        raw: the object as JSON.
        intake: receives the calls.
    """
    try:
        stored = reading.convert(raw, BindRequest)
    except msgspec.ValidationError as error:
        if kind == "DELETED":
            intake.forget((raw.get("metadata") or {}).get("uid", ""))
        else:
            _translate_malformed(raw, f"the request cannot be decoded: {error}", intake)
        return
    if kind == "DELETED":
        intake.gone(stored)
    else:
        intake.observe(stored, adopted=kind is None)


def _translate_malformed(raw: Any, message: str, intake: Intake) -> None:
    metadata, status = raw.get("metadata") or {}, raw.get("status")
    if metadata.get("deletionTimestamp"):
        intake.leaving(reading.convert(metadata, Meta), ())
        return
    phase = status.get("phase") if isinstance(status, dict) else None
    intake.malformed(
        Malformed(
            namespace=metadata.get("namespace", ""),
            name=metadata.get("name", ""),
            uid=metadata.get("uid", ""),
            message=message,
        ),
        is_final=phase in (Phase.SUCCEEDED, Phase.FAILED),
    )
