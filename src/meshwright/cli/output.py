"""What all verbs share: JSON or text to standard output, problems to standard error, exit codes, whole files."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from meshwright.errors import InfeasibleError, InputError, MeshwrightError, Problem

WRONG_INPUT = 2


@contextmanager
def errors_as_messages(as_json: bool, debug: bool) -> Iterator[None]:
    """Turn refusals into messages and exit codes; with ``debug`` let the traceback through."""
    try:
        yield
    except MeshwrightError as error:
        if debug:
            raise
        if as_json:
            print_json(_error_data(error))
        else:
            typer.echo(_error_text(error), err=True)
        raise typer.Exit(error.exit_code) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except RecursionError:
        if debug:
            raise
        typer.echo("Error: the input is nested too deeply.", err=True)
        raise typer.Exit(WRONG_INPUT) from None


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def check_writable(path: Path, option: str) -> None:
    """Refuse an output path before any work is done for it."""
    folder = path.parent
    if path.is_dir():
        raise InputError(Problem(option, str(path), "is a directory", "name a file"))
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(
            Problem(option, str(path), f"{folder} is no directory that can be written", "make it")
        )


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is never seen half: beside it first, then renamed."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as beside:
            beside.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(beside.name, 0o666 & ~umask)
        os.replace(beside.name, path)
    except OSError as error:
        raise InputError(
            Problem("output", str(path), f"cannot be written: {error}", "another path")
        ) from error


def _error_data(error: MeshwrightError) -> dict[str, Any]:
    if isinstance(error, InputError):
        return {"error": "wrong input", "problems": [problem.to_json() for problem in error.problems]}
    if isinstance(error, InfeasibleError):
        return {
            "error": error.message,
            "reasons": list(error.reasons),
            "suggestion": error.suggestion,
            "plans": [],
        }
    return {"error": str(error)}


def _error_text(error: MeshwrightError) -> str:
    if isinstance(error, InputError):
        lines = [f"  {problem}" for problem in error.problems]
        return "\n".join(["Error: the input is wrong.", *lines])
    return str(error)
