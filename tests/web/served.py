"""A running application for tests: requests go to it without a network."""

import asyncio
from contextlib import asynccontextmanager

import httpx

from meshwright.web.server import ServerOptions, make_app

SMALL = {"model": "llama-3.2-1b", "on": "h100-sxm-80gb x 2", "seq_len": 2048, "global_batch": 4, "top": 2}
LONG = {
    "model": "deepseek-v3",
    "on": "h800-sxm-80gb x 2048",
    "seq_len": 4096,
    "global_batch": 15360,
    "schedule": "auto",
}
HOST = "http://localhost:8000"


def options(**changes):
    return ServerOptions(**{"hosts": ("localhost",), "limit_s": 60.0} | changes)


@asynccontextmanager
async def client(**changes):
    """A client of a started application."""
    app = make_app(options(**changes))
    started, ended = asyncio.Event(), asyncio.Event()
    incoming: asyncio.Queue = asyncio.Queue()
    incoming.put_nowait({"type": "lifespan.startup"})

    async def send(message):
        (started if "startup" in message["type"] else ended).set()

    life = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, incoming.get, send))
    await started.wait()
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    try:
        async with httpx.AsyncClient(transport=transport, base_url=HOST, timeout=120) as found:
            yield found
    finally:
        incoming.put_nowait({"type": "lifespan.shutdown"})
        await ended.wait()
        await life


async def ask(found, verb, question, **headers):
    return await found.post(f"/api/{verb}", json=question, headers=headers)
