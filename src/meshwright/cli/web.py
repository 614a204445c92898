"""``meshwright web``: serve a page to ask planning questions in a browser."""

import sys
from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import errors_as_messages, print_json
from meshwright.errors import InputError, Problem

EXTRA = "pip install 'meshwright[web]'"


def web(
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 takes a free one.", min=0, max=65535)] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Name by which browsers ask. Repeatable."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", help="Token that browsers need; made if the host is not this machine alone."),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
    searches: Annotated[int, typer.Option("--searches", help="Searches at once.", min=1, max=64)] = 1,
    queue: Annotated[int, typer.Option("--queue", help="Searches that may wait.", min=0, max=10000)] = 50,
    limit_s: Annotated[float, typer.Option("--limit-s", help="Longest search in seconds.", min=1)] = 120.0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Serve a page to ask questions, follow searches, turn knobs and take plans away. Ctrl-C ends it."""
    with errors_as_messages(as_json, debug):
        try:
            from meshwright.web.start_server import Serving, serve
        except ModuleNotFoundError as error:
            rule = f"needs {error.name}, which is not installed"
            raise InputError(Problem("web", None, rule, EXTRA)) from None

        def said(address: str) -> None:
            if as_json:
                print_json({"address": address})
            else:
                typer.echo(f"Meshwright listens at {address} (Ctrl-C ends it)")
            sys.stdout.flush()

        names, browse = tuple(allow_host or ()), not no_open and sys.stdout.isatty()
        serve(Serving(host, port, names, token, searches, queue, limit_s, browse), said)
