"""Listen at an address, say which one, and open a browser there."""

import secrets
import socket
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn

from meshwright.errors import InputError, Problem
from meshwright.web.access_checks import LOOPBACK, is_loopback
from meshwright.web.server import ServerOptions, make_app


@dataclass(frozen=True, slots=True)
class Serving:
    """Where to listen and whom to answer, as the options of ``web`` say; ``browse``: open a browser."""

    host: str
    port: int
    names: tuple[str, ...]
    token: str | None
    searches: int
    queue: int
    limit_s: float
    browse: bool


def serve(serving: Serving, announce: Callable[[str], None]) -> None:
    """Serve until an interrupt; call ``announce`` with the address. Raises InputError for one that is taken."""
    open_host = not is_loopback(serving.host)
    token = serving.token or (secrets.token_urlsafe(24) if open_host else None)
    listening = _listen(serving.host, serving.port)
    port = listening.getsockname()[1]
    hosts = (*LOOPBACK, serving.host, *serving.names)
    shown = f"[{serving.host}]" if ":" in serving.host else serving.host
    address = f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
    app = make_app(ServerOptions(hosts, token, serving.searches, serving.queue, serving.limit_s))
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="on")
    announce(address)
    if serving.browse:
        webbrowser.open(address)
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises InputError."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except OSError as error:
        rule = f"cannot be listened on: {error.strerror or error}"
        raise InputError(Problem("port", f"{host}:{port}", rule, "--port 0 takes a free one")) from None
    return listening
