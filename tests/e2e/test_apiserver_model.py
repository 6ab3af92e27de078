"""The model of the API server gives the answers of a real one, and sends the same watch events.

The real server runs alone, without controllers, so nothing else writes. Compared are status code
and reason of every answer, every object and every line of the watches; see `modelcomparison`. Left
out are managedFields, the times that the server sets, nodeInfo and daemonEndpoints of nodes, empty
fields of built-in kinds, bookmarks, the order of finalizers, and messages. The model sets the
defaults of pods itself. Pods have no token, and their namespaces have a ServiceAccount.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devcluster import find
from devcluster.local import LocalControlPlane
from devcluster.plane import Tools
from tests.definitions import install_files
from tests.e2e.modelcalls import KINDS, Calls
from tests.e2e.modelcomparison import Asked, MismatchError, RealServer, Sides
from tests.e2e.modelground import prepare
from tests.histories.apiserver import pods, writes
from tests.histories.apiserver.definitions import CRDS
from tests.histories.apiserver.kinds import Kind
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Change, Key, Plain, Store, Version
from tests.sizes import IS_LONG

pytestmark = pytest.mark.e2e
_CALLS = 50_000 if IS_LONG else 5_000
_BETWEEN_CHECKS = 50
_SEED = "BINDERY_MODEL_SEED"
_SAMPLE_SEED = 316590227
_BARE: tuple[Plain, ...] = ({}, {"spec": {}}, {"spec": {"unschedulable": False}}, {})
"""Bodies of one node; those after the first change nothing."""


class LoneControlPlane(LocalControlPlane):
    """etcd and kube-apiserver alone."""

    def _start_controller_manager(self) -> None:
        """Start nothing."""

    def server(self) -> RealServer:
        """Return a connection for the administrator."""
        authority = self.state_dir / "certificates" / "apiserver.crt"
        url = f"https://127.0.0.1:{self._api_port}"
        return RealServer(url, self._token, authority.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def lone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    found = find.local(find.Options(), report=print)
    tools = Tools(kubectl=found.kubectl_path, helm=found.helm_path)
    plane = LoneControlPlane(
        found.binaries, tools, state_dir=tmp_path_factory.mktemp("lone"), report=print
    )
    plane.start()
    try:
        install_files(plane, sorted(Path(CRDS).glob("*.yaml")))
        yield plane.server()
    finally:
        plane.stop()


@pytest.fixture
def seed() -> int:
    given = os.environ.get(_SEED)
    if given:
        return int(given)
    # What no seed has shown yet is looked for in long runs, which may fail for a model that errs.
    return random.SystemRandom().randrange(10**9) if IS_LONG else _SAMPLE_SEED


def compare(real: RealServer, seed: int, calls: int, model: ModelApiServer | None = None) -> Sides:
    """Make `calls` random calls at both servers; return what was counted.

    Raises:
        MismatchError: they differ.
    """
    model = model or ModelApiServer(time.time, random.Random(seed))
    sides = Sides(model, real, seed)
    try:
        prepare(sides, {plural: model.kind(plural) for plural in (*KINDS, "serviceaccounts")})
        drawn = Calls(sides, random.Random(seed))
        while sides.calls < calls:
            drawn.step()
            if sides.calls % _BETWEEN_CHECKS == 0:
                sides.check_watches()
        sides.check_watches()
        sides.check_silence()
        sides.partners.check_order()
    finally:
        sides.close()
    return sides


@pytest.mark.timeout(3600)
def test_the_model_answers_as_a_real_api_server(lone_server: RealServer, seed: int) -> None:
    print(f"seed {seed}; another run with it: {_SEED}={seed}")

    sides = compare(lone_server, seed, _CALLS)

    print(f"{sides.calls} calls, {sides.refused} refused, {sides.lines} lines: {sides.reasons}")
    assert sides.refused > sides.calls / 3


def test_a_node_without_a_spec_has_an_empty_one(lone_server: RealServer) -> None:
    """So a write is none that only leaves it out, or only has what is stored without."""
    sides = Sides(ModelApiServer(time.time, random.Random(1)), lone_server, 1)
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
    try:
        sides.watch("/api/v1/nodes")
        sides.ask(Asked("POST", "/api/v1/nodes", body))
        for more in _BARE:
            sides.ask(Asked("PUT", "/api/v1/nodes/bare", {**body, **more}))
        sides.ask(Asked("DELETE", "/api/v1/nodes/bare"))
        sides.check_watches()
        sides.check_silence()
    finally:
        sides.close()

    assert sides.lines == 3


def test_a_write_that_only_gives_a_field_another_owner_is_a_write(
    lone_server: RealServer,
) -> None:
    """The model has no owners; the comparison lets it write."""
    sides = Sides(ModelApiServer(time.time, random.Random(2)), lone_server, 2)
    main = {"name": "main", "image": "a:1"}
    spec = {"containers": [main], "automountServiceAccountToken": False}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "owned"}, "spec": spec}
    noted = {"metadata": {"annotations": {"note": "a"}}}
    inside, merge = "/api/v1/namespaces/owners", "application/merge-patch+json"
    pods_of = f"{inside}/pods"
    try:
        sides.ask(Asked("POST", "/api/v1/namespaces", {"metadata": {"name": "owners"}}))
        account = {"metadata": {"name": "default"}}
        sides.ask(Asked("POST", f"{inside}/serviceaccounts", account))
        sides.watch(pods_of)
        sides.ask(Asked("POST", pods_of, body))
        sides.ask(Asked("PATCH", f"{pods_of}/owned/status", noted, merge))
        for _ in range(2):
            sides.ask(Asked("PATCH", f"{pods_of}/owned", noted, merge))
        sides.ask(Asked("DELETE", f"{pods_of}/owned"))
        sides.check_watches()
        sides.check_silence()
    finally:
        sides.close()

    assert sides.lines == 4


def forget_that_a_pod_is_bound(patch: pytest.MonkeyPatch) -> None:
    """Let a pod be bound twice."""
    bind = pods.bind

    def binding(pod: Plain, *rest: object) -> None:
        pod["spec"].pop("nodeName", None)
        bind(pod, *rest)  # type: ignore[arg-type]  # passed on as they came

    patch.setattr("tests.histories.apiserver.server.bind", binding)


def forget_the_version(patch: pytest.MonkeyPatch) -> None:
    """Accept writes to old versions."""
    patch.setattr(writes.Writes, "_check_version", lambda *_arguments: None)


def write_without_change(patch: pytest.MonkeyPatch) -> None:
    """Give an object a new version by a write that changes nothing."""
    put = Store.put

    def putting(store: Store, kind: Kind, key: Key, *rest: object) -> Version:
        stored = store.get(kind, key)
        if stored is not None:
            stored.is_final = False
        return put(store, kind, key, *rest)  # type: ignore[arg-type]  # passed on as they came

    patch.setattr(Store, "put", putting)


def lose_the_end(patch: pytest.MonkeyPatch) -> None:
    """Send nothing to a watch when an object leaves its selection."""
    patch.setattr(
        Change,
        "line_of_lost",
        lambda change, *, partial: change.line("MODIFIED", partial=partial),
    )


@pytest.mark.parametrize(
    "plant",
    [forget_that_a_pod_is_bound, forget_the_version, write_without_change, lose_the_end],
)
def test_a_planted_mistake_is_found(
    lone_server: RealServer,
    seed: int,
    plant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)

    with pytest.raises(MismatchError, match=rf"seed {seed}, call \d+: [A-Z]+ /api"):
        compare(lone_server, seed, 5_000)
