"""Who gets in, what the answers carry, and what each person sees: over HTTP."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from functools import cache

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs

from bindery.answers.source import Source
from bindery.dashboard import guard
from bindery.dashboard.guard import Entrance
from bindery.dashboard.rights import ALL
from bindery.dashboard.sessions import IDLE_S, RIGHTS_S
from tests.dashboard.pictures import BUSY, rights, source_in
from tests.dashboard.sites import SAME_SITE, Visit, visit
from tests.inlinescenarios import scenario_of, source_of

ADMIN, TENANT = "admin-token", "tenant-token"
PATHS = (
    *("/", "/gangs", "/queues", "/queues/vision", "/nodes", "/nodes/a0", "/promises", "/whatif"),
    *("/gangs/vision/sweep", "/overview.json", "/gangs.json", "/queues.json", "/nodes.json"),
    *("/gangs/vision/sweep.json", "/queues/vision.json", "/nodes/a0.json", "/promises.json"),
    *("/overview.csv", "/gangs.csv", "/queues.csv", "/nodes.csv", "/promises.csv"),
)


@cache
def busy() -> Source:
    return source_in(BUSY)


@pytest.fixture
async def busy_site() -> AsyncIterator[Visit]:
    people = {ADMIN: ALL, TENANT: rights("vision")}
    async with visit(busy(), people) as found:
        yield found


async def test_an_administrator_gets_every_page_in_every_form(busy_site: Visit) -> None:
    assert await busy_site.log_in(ADMIN) == 303

    for path in PATHS:
        answer = await busy_site.browser.get(path)
        text = await answer.text()
        assert answer.status == 200, path
        kinds = {"json": "application/json", "csv": "text/csv"}
        assert answer.content_type == kinds.get(path.rpartition(".")[2], "text/html")
        if path.endswith(".json"):
            assert {"version", "at", "ageSeconds"} <= json.loads(text).keys()


async def test_every_answer_has_the_strict_headers(busy_site: Visit) -> None:
    for path in ("/login", "/", "/gangs.json", "/static/page.css", "/nope", "/static/nope"):
        answer = await busy_site.browser.get(path, allow_redirects=False)
        for name, value in guard.HEADERS.items():
            assert answer.headers[name] == value, path
    policy = guard.HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")


async def test_without_a_login_a_person_is_sent_there_and_a_program_refused(
    busy_site: Visit,
) -> None:
    answer = await busy_site.browser.get("/gangs?show=all", allow_redirects=False)

    assert (answer.status, answer.headers["Location"]) == (303, "/login?next=/gangs?show=all")
    assert await busy_site.status("/gangs.json") == 401
    assert await busy_site.status("/events") == 401


async def test_a_token_that_the_api_server_refuses_does_not_log_in(busy_site: Visit) -> None:
    assert await busy_site.log_in("wrong-token") == 403
    assert await busy_site.log_in("two words") == 400
    assert await busy_site.status("/gangs.json") == 401


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(busy_site: Visit) -> None:
    answer = await busy_site.browser.post(
        "/login", data={"token": ADMIN}, headers=SAME_SITE, allow_redirects=False
    )

    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert ADMIN not in cookie
    assert Entrance(is_local=False, is_secure=True).cookie.startswith("__Host-")


async def test_a_program_uses_the_token_in_the_header(busy_site: Visit) -> None:
    given = {"Authorization": f"Bearer {TENANT}"}

    answer = await busy_site.browser.get("/gangs.json?show=all", headers=given)
    rows = (await answer.json())["listing"]["rows"]

    assert {row["namespace"] for row in rows} == {"vision"}
    assert await busy_site.status("/gangs.json", headers={"Authorization": "Bearer no"}) == 401
    assert await busy_site.status("/gangs.json", headers={"Authorization": "Basic abc"}) == 401


async def test_a_hidden_gang_answers_as_one_that_does_not_exist(busy_site: Visit) -> None:
    await busy_site.log_in(TENANT)

    for form in ("", ".json", ".csv"):
        answers = []
        for path in ("/gangs/language/pretrain", "/gangs/language/no-such"):
            answer = await busy_site.browser.get(f"{path}{form}")
            answers.append((answer.status, await answer.text()))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404


async def test_rights_that_are_taken_away_end_within_half_a_minute(busy_site: Visit) -> None:
    await busy_site.log_in(TENANT)
    assert "sweep" in await busy_site.text("/gangs")

    busy_site.people.by_token[TENANT] = rights("serving")
    busy_site.clock.now += RIGHTS_S

    text = await busy_site.text("/gangs")
    assert "sweep" not in text
    assert "migrated" in text


async def test_rights_are_asked_for_once_in_half_a_minute(busy_site: Visit) -> None:
    await busy_site.log_in(TENANT)
    for _ in range(3):
        await busy_site.text("/gangs")

    assert busy_site.people.reviews == 1


async def test_a_token_that_ends_ends_the_session(busy_site: Visit) -> None:
    await busy_site.log_in(TENANT)
    await busy_site.text("/gangs")

    del busy_site.people.by_token[TENANT]
    busy_site.clock.now += RIGHTS_S

    assert await busy_site.status("/gangs.json") == 401
    assert await busy_site.status("/gangs") == 303


async def test_without_an_answer_about_rights_nothing_is_shown(busy_site: Visit) -> None:
    await busy_site.log_in(TENANT)
    await busy_site.text("/gangs")

    busy_site.people.is_down = True
    busy_site.clock.now += RIGHTS_S

    answer = await busy_site.browser.get("/gangs")
    text = await answer.text()
    assert answer.status == 503
    assert "sweep" not in text
    assert "zzsecret" not in text


async def test_a_session_without_requests_ends(busy_site: Visit) -> None:
    await busy_site.log_in(ADMIN)
    busy_site.clock.now += IDLE_S + 1

    assert await busy_site.status("/gangs.json") == 401


async def test_who_logs_out_is_out(busy_site: Visit) -> None:
    await busy_site.log_in(ADMIN)
    answer = await busy_site.browser.post("/logout", headers=SAME_SITE, allow_redirects=False)

    assert answer.status == 303
    assert await busy_site.status("/gangs.json") == 401


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "http://page.test"}, True),
        ({"Origin": "http://evil.test"}, False),
        ({"Origin": "null"}, False),
        ({}, False),
        ({"Authorization": "Bearer abc"}, True),
        ({"Authorization": "Bearer abc", "Origin": "http://evil.test"}, False),
    ],
)
def test_a_form_is_taken_only_from_an_own_page(headers: dict[str, str], is_own: bool) -> None:
    request = make_mocked_request("POST", "/whatif", headers={"Host": "page.test", **headers})

    assert guard.is_from_own_page(request) is is_own


async def test_a_posted_form_from_another_site_is_refused(busy_site: Visit) -> None:
    await busy_site.log_in(ADMIN)

    for path in ("/logout", "/whatif", "/login"):
        answer = await busy_site.browser.post(path, headers={"Origin": "http://evil.test"})
        assert answer.status == 403
    assert await busy_site.status("/gangs.json") == 200


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/gangs?q=a", "/gangs?q=a"),
        ("//evil.test/x", "/"),
        ("https://evil.test/", "/"),
        ("/\\evil.test", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
        ("/a\r\nSet-Cookie: x", "/"),
    ],
)
def test_the_login_leads_only_to_own_pages(given: str, path: str) -> None:
    assert guard.next_path(given) == path


async def test_neither_a_log_nor_a_page_has_the_token(
    busy_site: Visit, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), capture_logs() as logs:
        await busy_site.log_in(TENANT)
        texts = [await busy_site.text(path) for path in ("/", "/gangs", "/whatif")]
        busy_site.people.is_down = True
        busy_site.clock.now += RIGHTS_S
        await busy_site.status("/gangs")

    assert all(TENANT not in text for text in (*texts, caplog.text, str(logs)))
    assert TENANT not in repr(busy_site.site.sessions.of_cookie(next(iter(_ids(busy_site)))))


def _ids(found: Visit) -> list[str]:
    return [cookie.value for cookie in found.browser.session.cookie_jar]


async def test_a_name_with_the_ending_of_a_form_has_a_page() -> None:
    text = (
        "{name: x, jobs: [{name: a.json, namespace: n, pods: [{gpus: 1}]}],"
        " queues: [{name: q.csv}]}"
    )
    async with visit(_inline(text), {ADMIN: ALL}) as found:
        await found.log_in(ADMIN)
        assert "/gangs/n/a.json.html" in await found.text("/gangs")
        assert "<h1>a.json</h1>" in await found.text("/gangs/n/a.json.html")
        assert json.loads(await found.text("/gangs/n/a.json.json"))["gang"]["name"] == "a.json"
        assert "Queue q.csv" in await found.text("/queues/q.csv.html")


def _inline(text: str) -> Source:
    return source_of(scenario_of(text))


# ---- on one machine --------------------------------------------------------------------------


async def test_the_ticket_of_a_local_page_lets_one_browser_in() -> None:
    async with visit(busy(), is_local=True) as found:
        found.site.ticket = "the-ticket"
        assert await found.status("/gangs.json") == 401
        assert await found.log_in("wrong") == 403
        assert await found.log_in("the-ticket") == 303
        assert await found.status("/gangs.json") == 200
        assert "Log out" not in await found.text("/queues"), "it could not log in again"

        found.browser.session.cookie_jar.clear()
        assert await found.log_in("the-ticket") == 403
        assert await found.status("/gangs.json") == 401


async def test_a_local_page_takes_no_header_with_a_token() -> None:
    async with visit(busy(), {ADMIN: ALL}, is_local=True) as found:
        given = {"Authorization": f"Bearer {ADMIN}"}
        assert await found.status("/gangs.json", headers=given) == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8080", 401), ("localhost:8080", 401), ("[::1]:8080", 401), ("evil.test", 421)],
)
async def test_a_local_page_is_reached_by_local_names_only(host: str, status: int) -> None:
    async with visit(busy(), is_local=True) as found:
        assert await found.status("/gangs.json", headers={"Host": host}) == status


# ---- events and whatif -----------------------------------------------------------------------


async def test_a_page_with_a_login_has_the_way_out_and_its_other_forms(busy_site: Visit) -> None:
    await busy_site.log_in(ADMIN)

    text = await busy_site.text("/queues/language.html")

    assert "Log out" in text
    assert 'href="/queues/language.json?"' in text


async def test_an_open_page_is_sent_the_number_of_the_picture(busy_site: Visit) -> None:
    await busy_site.log_in(ADMIN)
    await busy_site.text("/gangs")

    async with busy_site.browser.get("/events") as answer:
        assert answer.content_type == "text/event-stream"
        lines = [await answer.content.readline() for _ in range(2)]

    assert lines == [b"event: state\n", b"data: 1\n"]


async def test_a_waiting_gang_has_a_page_about_what_would_help(busy_site: Visit) -> None:
    await busy_site.log_in(ADMIN)
    path = "/gangs/vision/sweep/help"

    assert f'href="{path}"' in await busy_site.text("/gangs/vision/sweep")
    assert "What would help sweep" in await busy_site.text(path)
    page = json.loads(await busy_site.text(f"{path}.json"))
    (closed,) = page["closed"]
    assert closed["nodes"] == 42
    assert sum(closed["against"].values()) == 42 - closed["openNodes"]
    assert {row["gang"]["namespace"] for row in page["listing"]["rows"]} == {"vision"}
    assert (await busy_site.text(f"{path}.csv")).startswith("Gang in the way,")


BLOCKED = """
nodes: [{name: n, gpus: 8}]
queues: [{name: a, gpu: {quota: 8}}, {name: b, gpu: {quota: 0, weight: 1}, reclaimable: false}]
jobs:
- {name: secret, namespace: theirs, queue: b, pods: [{count: 8, gpus: 1, state: Running, node: n}]}
- {name: mine, namespace: own, queue: a, priority: 50, pods: [{count: 4, gpus: 1}]}
"""


async def test_what_would_help_names_no_gangs_of_others() -> None:
    people = {ADMIN: ALL, TENANT: rights("own")}
    async with visit(_inline(BLOCKED), people) as found:
        given = {"Authorization": f"Bearer {ADMIN}"}
        answer = await found.browser.get("/gangs/own/mine/help.csv", headers=given)
        assert "theirs/secret" in await answer.text()

        await found.log_in(TENANT)
        for form in ("", ".json", ".csv"):
            text = await found.text(f"/gangs/own/mine/help{form}")
            assert "secret" not in text
            assert "theirs" not in text
        assert "a gang of others" in await found.text("/gangs/own/mine/help")
        hidden, missing = [
            await (await found.browser.get(f"/gangs/theirs/{name}/help.json")).text()
            for name in ("secret", "no-such")
        ]
        assert hidden == missing


async def test_a_page_about_what_would_help_comes_before_its_answer(busy_site: Visit) -> None:
    await busy_site.log_in(ADMIN)
    await busy_site.text("/gangs")

    async with busy_site.site.reader.kept.turn:  # a plan is under way
        answer = await busy_site.browser.get("/gangs/vision/sweep/help")
        text = await answer.text()
        program = asyncio.create_task(busy_site.text("/gangs/vision/sweep/help.json"))

    assert answer.status == 200
    assert "What would help sweep" in text
    assert "The answer is being planned" in text
    assert json.loads(await program)["gang"]["key"]["name"] == "sweep"
    assert "Gangs in the way" in await busy_site.text("/gangs/vision/sweep/help")


async def test_only_so_many_questions_wait_at_a_time(busy_site: Visit) -> None:
    await busy_site.log_in(ADMIN)
    await busy_site.text("/gangs")
    rows = json.loads(await busy_site.text("/gangs.json"))["listing"]["rows"]
    gangs = [f"{row['key']['namespace']}/{row['key']['name']}" for row in rows]

    async with busy_site.site.reader.kept.turn:
        statuses = [await busy_site.status(f"/gangs/{gang}/help") for gang in gangs]

    assert set(statuses) == {200, 503}
    assert statuses.count(200) == 5


MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {name: mine, labels: {scheduling.bindery.dev/queue: vision}%s}
spec:
  completions: 1
  template:
    spec:
      schedulerName: bindery
      containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: %d}}}]
"""


async def ask(found: Visit, manifest: str, namespace: str = "vision") -> tuple[int, str]:
    data = {"manifest": manifest, "namespace": namespace}
    answer = await found.browser.post("/whatif", data=data, headers=SAME_SITE)
    text = await answer.text()
    return answer.status, await found.text(answer.url.path_qs) if "data-asking" in text else text


async def test_whatif_answers_what_would_happen(busy_site: Visit) -> None:
    await busy_site.log_in(ADMIN)

    status, text = await ask(busy_site, MANIFEST % ("", 1))

    assert status == 200
    assert "All of it would run" in text
    assert "Job/mine" in text


async def test_an_answer_of_whatif_has_a_link_for_people_with_the_same_rights(
    busy_site: Visit,
) -> None:
    await busy_site.log_in(ADMIN)
    await busy_site.text("/gangs")
    data = {"manifest": MANIFEST % ("", 1), "namespace": "vision"}
    async with busy_site.site.reader.kept.turn:
        answer = await busy_site.browser.post("/whatif", data=data, headers=SAME_SITE)
        assert "The answer is being planned" in await answer.text()

    link = answer.url.path_qs
    assert "All of it would run" in await busy_site.text(link)
    await busy_site.log_in(TENANT)
    assert "This answer is not kept any more" in await busy_site.text(link)


async def test_whatif_names_only_what_the_person_may_see(busy_site: Visit) -> None:
    await busy_site.log_in(TENANT)

    _, text = await ask(busy_site, MANIFEST % ("", 8))

    for name in ("language", "robots", "serving", "pretrain", "swarm", "ablation"):
        assert name not in text


@pytest.mark.parametrize("namespace", ["language", "no-such-namespace"])
async def test_whatif_refuses_a_namespace_that_is_not_for_the_person(
    busy_site: Visit, namespace: str
) -> None:
    """The answer is the same whether the namespace exists or not."""
    await busy_site.log_in(TENANT)
    expected = f"you may not list PodGroups and pods in {namespace}"

    assert expected in (await ask(busy_site, MANIFEST % ("", 1), namespace))[1]
    assert expected in (await ask(busy_site, MANIFEST % (f", namespace: {namespace}", 1)))[1]


async def test_whatif_of_a_tenant_takes_no_objects_of_the_whole_cluster(busy_site: Visit) -> None:
    await busy_site.log_in(TENANT)
    queue = "{apiVersion: scheduling.bindery.dev/v1alpha1, kind: Queue, metadata: {name: vision}}"

    _, text = await ask(busy_site, queue)

    assert "your rights do not include objects of this kind" in text


@pytest.mark.parametrize("manifest", ["{", "a: &a [*a]", "- 1", "kind: Job", "\x00", "x" * 1000])
async def test_a_manifest_that_cannot_be_used_gets_a_line(busy_site: Visit, manifest: str) -> None:
    await busy_site.log_in(ADMIN)

    status, text = await ask(busy_site, manifest)

    assert status == 200
    assert "No answer:" in text


async def test_a_manifest_that_is_too_large_is_refused(busy_site: Visit) -> None:
    await busy_site.log_in(ADMIN)

    answer = await busy_site.browser.post(
        "/whatif", data={"manifest": "x" * (2**20 + 1)}, headers=SAME_SITE
    )

    assert answer.status == web.HTTPRequestEntityTooLarge.status_code
