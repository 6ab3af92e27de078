"""Users of a queue take turns; the Queue definition is checked by the real API server."""

import pytest

from bindery.api.names import USER_KEY
from bindery.kube.errors import InvalidError
from bindery.kube.objects.resources import QUEUES
from tests.e2e.support import Corner, Gang

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]


async def test_a_newer_gang_precedes_older_gangs_of_a_user_with_more_resources(
    corner: Corner,
) -> None:
    queue = await corner.add_queue("shared", {"fairUsers": {}})
    stored = await corner.client.get(QUEUES, queue)
    assert stored.spec.fair_users is not None
    assert stored.spec.fair_users.label == USER_KEY
    await corner.add_nodes("a", cpu="2")
    runs, old, young = (
        Gang(name, 1, queue=queue, labels={USER_KEY: user})
        for name, user in (("runs", "ann"), ("old", "ann"), ("young", "bob"))
    )
    blocker = Gang("blocker", 1, queue=queue)
    await corner.submit(runs, blocker)
    await corner.wait_bound(runs, blocker)
    for gang in (old, young):
        await corner.submit(gang)
        await corner.wait_condition(gang, "False", "Unschedulable")

    await corner.delete_gang(blocker)

    await corner.wait_bound(young)
    assert await corner.bound_count(old) == 0


async def test_the_api_server_refuses_an_invalid_label_key(corner: Corner) -> None:
    with pytest.raises(InvalidError, match=r"spec\.fairUsers\.label"):
        await corner.add_queue("bad", {"fairUsers": {"label": "no label"}})
