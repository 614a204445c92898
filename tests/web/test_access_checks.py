"""The guard: foreign hosts, origins and tokens, large bodies, headers of every answer."""

import asyncio

import pytest
from served import HOST, SMALL, ask, client

from meshwright.web.access_checks import HEADERS, LARGEST_BODY, is_loopback


def answered(work, **changes):
    async def run():
        async with client(**changes) as found:
            return await work(found)

    return asyncio.run(run())


def test_only_known_hosts_and_origins_are_answered():
    async def work(found):
        for headers, status in (
            ({}, 200),
            ({"host": "LOCALHOST:9"}, 200),
            ({"host": "evil.example"}, 421),
            ({"host": "localhost.evil.example"}, 421),
            ({"host": ""}, 421),
            ({"origin": HOST}, 200),
            ({"origin": "http://evil.example"}, 403),
            ({"origin": "null"}, 403),
            ({"origin": "http://localhost:1234"}, 403),
            ({"sec-fetch-site": "cross-site"}, 403),
            ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
        ):
            response = await found.get("/", headers=headers)
            assert response.status_code == status, headers
            assert "access-control-allow-origin" not in response.headers

    answered(work)


def test_bodies_are_json_and_small():
    async def work(found):
        post = found.post
        assert (await post("/api/plan", content=b"a=1")).status_code == 415
        form = {"content-type": "text/plain"}
        assert (await post("/api/plan", content=b"{}", headers=form)).status_code == 415
        json = {"content-type": "application/json"}
        large = b" " * (LARGEST_BODY + 1)
        assert (await post("/api/plan", content=large, headers=json)).status_code == 413

        async def pieces():
            for _ in range(33):
                yield b" " * 2**15

        endless = json | {"transfer-encoding": "chunked"}
        assert (await post("/api/plan", content=pieces(), headers=endless)).status_code == 413
        assert (await found.delete("/api/plan")).status_code == 405

    answered(work)


def test_every_answer_has_the_headers_and_unknown_addresses_are_404():
    async def work(found):
        for path, status in (("/", 200), ("/static/app.js", 200), ("/static/../server.py", 404), ("/x", 404)):
            response = await found.get(path)
            assert response.status_code == status
            for name, value in HEADERS.items():
                assert name == "cache-control" or response.headers[name] == value
        assert (await ask(found, "run", SMALL)).status_code == 404
        assert (await found.get("/api/plan")).status_code == 404

    answered(work)


def test_a_token_comes_with_the_address_and_stays_as_a_cookie():
    async def work(found):
        assert (await found.get("/")).status_code == 401
        assert (await found.get("/?token=wrong")).status_code == 401
        assert (await found.get("/", headers={"authorization": "Bearer secret"})).status_code == 200
        first = await found.get("/?token=secret")
        assert first.status_code == 200
        assert "HttpOnly; SameSite=Strict" in first.headers["set-cookie"]
        assert (await found.get("/static/app.js")).status_code == 200

    answered(work, token="secret")


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_which_hosts_reach_this_machine_alone(host, own):
    assert is_loopback(host) == own
