"""The server: pages, scripts, the verbs as ``/api/VERB``, progress as server-sent events, and reports."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from meshwright.cli.terminal.output import wrong_input
from meshwright.errors import InputError
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.present.page.page_scripts import chart_base, content_policy, echarts, style_sheet
from meshwright.present.page.report_page import reasons_page
from meshwright.present.plan_answers.layout_text import plan_words
from meshwright.verbs.catalogue import list_devices, list_models, list_stacks
from meshwright.web import answers
from meshwright.web.access_checks import BodyTooLargeError, Guard
from meshwright.web.questions import QUESTIONS, read_question
from meshwright.web.workers import QueueFullError, WorkerPool

SEARCHES = ("plan", "explain", "report", "check")
"""Verbs that may search for long; the others are answered beside them."""
QUICK_LIMIT_S = 30.0
EVENTS = "text/event-stream"
STATIC: dict[str, tuple[str, Callable[[], str]]] = {
    "app.js": ("text/javascript", lambda: _own_file("app.js")),
    "app.css": ("text/css", lambda: _own_file("app.css")),
    "base.css": ("text/css", style_sheet),
    "echarts.js": ("text/javascript", echarts),
    "charts.js": ("text/javascript", chart_base),
}
"""Files by name: their type, and what returns their text."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """``hosts`` may ask; ``searches`` run at once, ``queue`` more may wait, each for ``limit_s`` seconds at most."""

    hosts: tuple[str, ...]
    token: str | None = None
    searches: int = 1
    queue: int = 50
    limit_s: float = 120.0


def make_app(options: ServerOptions) -> Any:
    """Return the application."""
    pools: dict[str, WorkerPool] = {}

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        pools["search"] = WorkerPool(options.searches, options.queue, options.limit_s)
        pools["quick"] = WorkerPool(1, options.queue, QUICK_LIMIT_S)
        yield
        for pool in pools.values():
            pool.close()

    async def verb(request: Request) -> Response:
        name = request.path_params["verb"]
        if name not in QUESTIONS:
            return _not_found()
        question = await _question(name, request)
        if isinstance(question, Response):
            return question
        pool = pools["search" if name in SEARCHES else "quick"]
        if EVENTS in request.headers.get("accept", ""):
            return StreamingResponse(_events(pool, name, question), media_type=EVENTS)
        found = await _unless_disconnected(request, _answered(pool, name, question, lambda what, part: None))
        headers = {"meshwright-exit-code": str(found.exit_code)}
        if found.status in (429, 503):
            headers["retry-after"] = str(found.document["retry_after_s"])
        return JSONResponse(found.document, found.status, headers)

    async def report(request: Request) -> Response:
        text = request.query_params.get("question", "")
        question = _read("report", text.encode())
        if isinstance(question, Response):
            title = "The question is wrong"
            problems = json.loads(bytes(question.body))["problems"]
            reasons = [f"{one['field']}: {one['rule']}" for one in problems]
            data = {"error": title, "reasons": reasons, "suggestion": problems[0]["suggestion"]}
            return HTMLResponse(reasons_page(title, data), 422, {"content-security-policy": content_policy()})
        found = await _unless_disconnected(
            request, _answered(pools["search"], "report", question, lambda what, part: None)
        )
        page = found.page
        if page is None:
            data = {"error": "No report", "reasons": _reasons(found.document), "suggestion": ""}
            page = reasons_page("No report", data)
        return HTMLResponse(page, found.status, {"content-security-policy": content_policy()})

    async def plan_file(request: Request) -> Response:
        question = await _question("export", request)
        if isinstance(question, Response):
            return question
        try:
            text = dump_plan(parse_plan(json.dumps(question.plan)))
        except InputError as error:
            return JSONResponse(wrong_input(error.problems), 422)
        return Response(text, media_type="application/yaml")

    routes = [
        Route("/", _index),
        Route("/static/{name}", _static),
        Route("/api/catalogue", _catalogue),
        Route("/api/{verb}", verb, methods=["POST"]),
        Route("/plan.yaml", plan_file, methods=["POST"]),
        Route("/report", report),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={404: _missing, 405: _missing, BodyTooLargeError: _too_large},
    )
    return Guard(app, options.hosts, options.token)


def _read(verb: str, body: bytes) -> Any:
    """Return a question, or the response that says what is wrong with it."""
    try:
        return read_question(verb, body)
    except InputError as error:
        return JSONResponse(wrong_input(error.problems), 422, {"meshwright-exit-code": "2"})


async def _question(verb: str, request: Request) -> Any:
    return _read(verb, await request.body())


async def _answered(pool: WorkerPool, verb: str, question: Any, on_progress: Any) -> answers.Response:
    """Return an answer, or why there is none."""
    try:
        return await pool.answer(verb, question, on_progress)
    except QueueFullError as error:
        return answers.Response(429, 1, {"error": str(error), "retry_after_s": error.retry_s})
    except TimeoutError:
        text = f"the question took longer than {pool.limit_s:g} s and was ended; --limit-s allows more"
        return answers.Response(503, 1, {"error": text, "retry_after_s": 1})


async def _unless_disconnected(request: Request, work: Awaitable[answers.Response]) -> answers.Response:
    """Wait for an answer until the client disconnects."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=0.5)
            if not task.done() and await request.is_disconnected():
                break
        if task.done():
            return task.result()
        return answers.Response(499, 1, {"error": "nobody waits for the answer"})
    finally:
        task.cancel()


async def _events(pool: WorkerPool, verb: str, question: Any) -> AsyncIterator[str]:
    """Yield the progress of a question, then its answer, as server-sent events."""
    events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

    def on_progress(what: str, part: float) -> None:
        events.put_nowait(("progress", {"what": what, "part": part}))

    async def work() -> None:
        found = await _answered(pool, verb, question, on_progress)
        document = {"status": found.status, "exit_code": found.exit_code, "document": found.document}
        events.put_nowait(("answer", document | {"words": _plans_in_words(found.document)}))

    task = asyncio.ensure_future(work())
    try:
        name = ""
        while name != "answer":
            name, data = await events.get()
            yield f"event: {name}\ndata: {json.dumps(data)}\n\n"
    finally:
        task.cancel()


async def _index(request: Request) -> Response:
    return HTMLResponse(_own_file("index.html"))


async def _static(request: Request) -> Response:
    found = STATIC.get(request.path_params["name"])
    if found is None:
        return _not_found()
    kind, text = found
    return Response(text(), media_type=kind, headers={"cache-control": "max-age=300"})


def _own_file(name: str) -> str:
    return (files("meshwright.web") / "static" / name).read_text(encoding="utf-8")


async def _catalogue(request: Request) -> Response:
    """Return the names that a question may have."""
    return JSONResponse({"models": list_models(), "devices": list_devices(), "stacks": list_stacks()})


def _not_found() -> Response:
    return JSONResponse({"error": "there is nothing at this address"}, 404)


async def _missing(request: Request, error: Exception) -> Response:
    return _not_found()


async def _too_large(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "a body has at most 1 MiB"}, 413)


def _plans_in_words(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the choices of the plans of an answer in a few words, by the list that holds them."""
    found = {name: document.get(name) or () for name in ("plans", "pareto_memory")}
    return {name: [plan_words(one["plan"]) for one in rows] for name, rows in found.items()}


def _reasons(document: Mapping[str, Any]) -> list[str]:
    problems = [f"{one['field']}: {one['rule']}" for one in document.get("problems", ())]
    return [document["error"], *document.get("reasons", ()), *problems]
