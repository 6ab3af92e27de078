"""A separate control plane for tests of API groups that are off by default.

A module chooses them by `FEATURES`, `IS_NEXT` (the next Kubernetes) and `VERSION` of upstream's
API.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bindery.api.configuration import (
    GrouperConfiguration,
    GrouperExpectation,
    LeaderElection,
    PluginConfiguration,
)
from devcluster import build, find
from devcluster.components import Component, Components
from devcluster.install import Installation, install
from devcluster.plane import ControlPlane
from tests.administrator import Administrator
from tests.e2e.support import Corner, binder_configuration, scheduler_configuration
from tests.e2e.upstream.upstreamcorner import Upstream
from tests.required import lacking


@pytest.fixture(scope="module")
def control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    module = request.module
    if module.IS_NEXT and not build.are_built(build.NEXT, build.NEXT_MODULE):
        lacking("the next Kubernetes is not built: make controlplane-next")
    options = find.Options(
        state_dir=tmp_path_factory.mktemp("upstream"),
        features=module.FEATURES,
        is_next=module.IS_NEXT,
        node_grace_s=24 * 3600,
    )
    with find.local(options, report=print) as plane:
        yield plane


@pytest.fixture(scope="module")
def admin_kubeconfig(control_plane: ControlPlane) -> Path:
    return control_plane.admin_kubeconfig


@pytest.fixture(scope="module")
def installation(control_plane: ControlPlane) -> Installation:
    return install(control_plane)


@pytest.fixture(scope="module")
def administrator(control_plane: ControlPlane) -> Administrator:
    return Administrator(control_plane.admin_kubeconfig)


@pytest.fixture(scope="module")
def scheduler(module_components: Components, pool: str) -> Component:
    configuration = scheduler_configuration(pool).model_copy(
        update={"grouper": GrouperExpectation(wait_for_groups=True)}
    )
    return module_components.start_scheduler(configuration).wait_ready()


@pytest.fixture(scope="module")
def binder(module_components: Components) -> Component:
    configuration = binder_configuration(PluginConfiguration(name="dra"))
    return module_components.start_binder(configuration).wait_ready()


@pytest.fixture(scope="module")
def grouper(module_components: Components) -> Component:
    configuration = GrouperConfiguration(leader_election=LeaderElection(enabled=False))
    return module_components.start_grouper(configuration).wait_ready()


@pytest.fixture
async def upstream(request: pytest.FixtureRequest, corner: Corner) -> AsyncIterator[Upstream]:
    upstream = Upstream(corner, request.module.VERSION)
    yield upstream
    for each in await corner.client.list(upstream.kind(), namespace=corner.namespace):
        await upstream.delete(each.metadata.name)
