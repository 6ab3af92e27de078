"""The CDI file of a prepared claim (Container Device Interface 0.6.0). Pure.

A file has a CDI device for each request, because containers of one pod can use different requests
of a claim. The annotations have what is needed after a restart.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bindery.nodeagent.gpuclaims import grants
from bindery.nodeagent.gpuclaims.grants import GrantedShare, GrantError, Held
from bindery.nodeagent.gpuclaims.slices import DRIVER
from bindery.nodeagent.hamicore import ContainerMount, HamiCore

VERSION: Final = "0.6.0"
"""The first with annotations."""
KIND: Final = f"{DRIVER}/share"
_PREFIX: Final = KIND.replace("/", "-") + "_"
_SUFFIX: Final = ".json"
_NAMESPACE: Final = f"{DRIVER}/namespace"
_CLAIM: Final = f"{DRIVER}/claim"
_HELD: Final = f"{DRIVER}/held"
_COUNTS: Final = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
_UID = re.compile("[A-Za-z0-9]+(-[A-Za-z0-9]+)*")


class UnreadableSpecError(Exception):
    """A file with the name of a claim has another content."""


@dataclass(frozen=True)
class ClaimOnNode:
    """A claim, as the kubelet names it."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class PreparedFile:
    """The content of a CDI file that is needed after a restart."""

    claim: ClaimOnNode
    held: Held


def file_name(uid: str) -> str:
    """Return the name of the file of a claim.

    Raises:
        GrantError: `uid` is none.
    """
    if not _UID.fullmatch(uid):
        raise GrantError(f"{uid!r} is not the UID of a claim")
    return f"{_PREFIX}{uid}{_SUFFIX}"


def uid_of(name: str) -> str | None:
    """Return the UID of the claim of a file; None for other files."""
    if not name.startswith(_PREFIX) or not name.endswith(_SUFFIX):
        return None
    uid = name[len(_PREFIX) : -len(_SUFFIX)]
    return uid if _UID.fullmatch(uid) else None


def device_id(uid: str, request: str) -> str:
    """Return the name of the CDI device of a request of a claim; it is never used again."""
    return f"{KIND}={_device(uid, request)}"


def text(claim: ClaimOnNode, given: Sequence[GrantedShare], core: HamiCore) -> str:
    """Return the content of the file; the same for the same claim."""
    requests: dict[str, list[GrantedShare]] = {}
    for grant in given:
        requests.setdefault(grant.request, []).append(grant)
    body = {
        "cdiVersion": VERSION,
        "kind": KIND,
        "annotations": {
            _NAMESPACE: claim.namespace,
            _CLAIM: claim.name,
            _HELD: grants.encode(grants.held(given)),
        },
        "devices": [
            {"name": _device(claim.uid, request), "containerEdits": _edits(claim.uid, of, core)}
            for request, of in requests.items()
        ],
    }
    return json.dumps(body, indent=2, sort_keys=True) + "\n"


def read(uid: str, content: str) -> PreparedFile:
    """Return the claim of a file, and the parts that it holds.

    Raises:
        UnreadableSpecError: this driver has not written it.
    """
    try:
        notes: Mapping[str, Any] = json.loads(content)["annotations"]
        claim = ClaimOnNode(notes[_NAMESPACE], notes[_CLAIM], uid)
        return PreparedFile(claim, grants.decode(notes[_HELD]))
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableSpecError(f"{type(error).__name__}: {error}") from error


def _device(uid: str, request: str) -> str:
    return f"{uid}-{request}"


def _edits(uid: str, given: Sequence[GrantedShare], core: HamiCore) -> dict[str, Any]:
    """Return what containers get that use the request of `given`."""
    values = grants.variables(given)
    # Admin access is for those who look after the GPU, and the hardware limits MIG instances.
    if not core.is_installed or not all(grant.is_limited for grant in given):
        return {"env": _env(values)}
    request = given[0].request
    values[_COUNTS] = core.counts(_device(uid, request))
    mounts = core.mounts(core.of_request(uid, request))
    return {"env": _env(values), "mounts": [_mount(mount) for mount in mounts]}


def _env(values: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def _mount(mount: ContainerMount) -> dict[str, Any]:
    options = ["ro" if mount.read_only else "rw", "nosuid", "nodev", "bind"]
    return {"hostPath": mount.on_node, "containerPath": mount.inside, "options": options}
