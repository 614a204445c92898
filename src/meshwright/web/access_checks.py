"""Check who may ask the server: host names, origin, token, and the size of bodies.

A page of another site could otherwise ask a server on this machine (DNS rebinding, cross-site requests).
"""

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 2**20
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
COOKIE = "meshwright_token"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Return true if only this machine reaches a host."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status with its reason."""

    status: int
    reason: str


class Guard:
    """Wraps an application; ``hosts`` are the names it may be asked by, ``token`` is None where none is needed."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], token: str | None) -> None:
        self.app, self.hosts, self.token = app, frozenset(host.lower() for host in hosts), token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(send, refusal)
            return
        given = self._given_token(scope, headers)
        await self.app(scope, _limited(receive), self._with_headers(send, given))

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        """Return the reason to refuse a request; None for one to answer."""
        host = headers.get("host", "")
        if _name(host) not in self.hosts:
            return Refusal(421, "this server is not asked by that name; --allow-host NAME allows it")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return Refusal(403, "requests from other sites are refused")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return Refusal(403, "requests from other sites are refused")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return Refusal(405, "only GET and POST are answered")
        if scope["method"] == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return Refusal(415, "a body is JSON: content-type application/json")
            length = headers.get("content-length", "0")
            if not length.isdigit() or int(length) > LARGEST_BODY:
                return Refusal(413, "a body has at most 1 MiB")
        if self.token is not None and not self._is_token(self._given_token(scope, headers)):
            return Refusal(401, "a token is needed: open the address that the server printed")
        return None

    def _given_token(self, scope: Scope, headers: dict[str, str]) -> str:
        """Return the token of a request: of its header, its cookie or its address."""
        header = headers.get("authorization", "")
        if header.lower().startswith("bearer "):
            return header[7:].strip()
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        if cookie is not None:
            return cookie.value
        return parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]

    def _is_token(self, given: str) -> bool:
        return self.token is not None and secrets.compare_digest(given.encode(), self.token.encode())

    def _with_headers(self, send: Send, given: str) -> Send:
        """Add the headers of all answers, and the token as a cookie."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                added = [
                    (name.encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.encode() not in there
                ]
                if self.token is not None:
                    cookie = f"{COOKIE}={given}; HttpOnly; SameSite=Strict; Path=/"
                    added.append((b"set-cookie", cookie.encode()))
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        return sending


def _name(host: str) -> str:
    """Return the name of a host without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


class BodyTooLargeError(Exception):
    """A body went on beyond the limit."""


def _limited(receive: Receive) -> Receive:
    """Count the bytes of a body that does not say its length."""
    seen = [0]

    async def receiving() -> Message:
        message = await receive()
        seen[0] += len(message.get("body", b""))
        if seen[0] > LARGEST_BODY:
            raise BodyTooLargeError
        return message

    return receiving


async def _refuse(send: Send, refusal: Refusal) -> None:
    body = json.dumps({"error": refusal.reason}).encode()
    headers: list[Any] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *((name.encode(), value.encode()) for name, value in HEADERS.items()),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
