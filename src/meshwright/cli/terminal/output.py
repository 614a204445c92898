"""Output of all verbs: JSON or text to standard output, problems to standard error, exit codes, files."""

import errno
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.progress import erase_bar
from meshwright.errors import InfeasibleError, InputError, MeshwrightError, Problem

WRONG_INPUT = 2
MORE_REASONS = "--why shows how many plans were not taken, and for which reasons."
INTERRUPTED = 130
"""128 and the number of the signal, as in shells."""


@contextmanager
def errors_as_messages(as_json: bool, debug: bool, *, why: bool = False) -> Iterator[None]:
    """Turn refusals into messages and exit codes; with ``debug`` let the traceback through.

    ``why``: an answer that is no comes with all reasons, not only with their summary.
    """
    try:
        yield
    except MeshwrightError as error:
        if debug:
            raise
        erase_bar()
        _wait_for_others()
        if as_json:
            print_json(error_data(error))
        else:
            typer.echo(_error_text(error, why), err=True)
        raise typer.Exit(error.exit_code) from None
    except BrokenPipeError:
        _stop_writing()
        raise typer.Exit(0) from None
    except OSError as error:
        if debug:
            raise
        _stop_writing()
        where = f" ({error.filename})" if error.filename else ""
        typer.echo(f"Error: reading or writing failed: {error.strerror or error}{where}.", err=True)
        raise typer.Exit(WRONG_INPUT) from None
    except KeyboardInterrupt:
        if debug:
            raise
        erase_bar()
        typer.echo("Interrupted before there was an answer.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except RecursionError:
        if debug:
            raise
        if as_json:
            rule = "is nested too deeply"
            print_json(wrong_input([Problem("input", None, rule, "a file of fewer levels")]))
        else:
            typer.echo("Error: the input is nested too deeply.", err=True)
        raise typer.Exit(WRONG_INPUT) from None


def _wait_for_others() -> None:
    """Let a lower launched rank report the error first."""
    from meshwright.cli.terminal.launcher_ranks import wait_for_lower_ranks

    wait_for_lower_ranks()


def _stop_writing() -> None:
    """Discard output that is still to be flushed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(data: Any) -> None:
    """Print one JSON document; bytes of a path that are not text become JSON escapes."""
    erase_bar()
    ascii_only = not sys.stdout.encoding.lower().startswith("utf")
    text = json.dumps(data, indent=2, ensure_ascii=ascii_only, allow_nan=False)
    typer.echo(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def print_answer(answer: Answer, as_json: bool) -> None:
    """Print an answer as JSON, or its remarks and tables. Exit with 1 where it is not ok."""
    if as_json:
        print_json(answer.data)
    else:
        print_remarks(answer.remarks)
        answer.render(answer.data)
    if not answer.ok:
        raise typer.Exit(1)


def print_remarks(remarks: Iterable[str]) -> None:
    """Print remarks about an answer on standard error."""
    erase_bar()
    for remark in remarks:
        typer.echo(f"Remark: {remark}", err=True)


def check_writable(path: Path, option: str) -> None:
    """Refuse an output path before any work is done for it.

    Creates and removes a file in its folder: permissions alone do not tell whether a file system accepts one.
    """
    folder = path.parent
    if path.is_dir():
        raise InputError(Problem(option, str(path), "is a directory", "name a file"))
    if path.exists() and not path.is_file():
        if not os.access(path, os.W_OK):
            raise InputError(Problem(option, str(path), "cannot be written", "another path"))
        return
    try:
        with tempfile.TemporaryFile(dir=path.resolve().parent):
            pass
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        rule = f"{folder} is no directory that can be written: {reason}"
        raise InputError(Problem(option, str(path), rule, "make it, or name a file in another one")) from None


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody sees it half-written."""
    write_all({path: text})


def write_all(files: Mapping[Path, str]) -> None:
    """Write files so that none is seen half-written, and none at all if one of them cannot be written.

    They are written to temporary files first and renamed last; scripts (``#!``) become executable. What is not a
    regular file (a pipe, a terminal) is written directly.
    """
    temporary: dict[Path, Path] = {}
    path = Path()
    try:
        for path, text in files.items():
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if path.exists() and not path.is_file():
                path.write_text(text, encoding="utf-8")
            else:
                temporary[path.resolve()] = _temporary_file(path.resolve(), text)
        for path, written in temporary.items():
            os.replace(written, path)
    except OSError as error:
        for written in temporary.values():
            written.unlink(missing_ok=True)
        rule = f"cannot be written: {error.strerror or error}"
        raise InputError(Problem("output", str(path), rule, "another path")) from error


def _temporary_file(path: Path, text: str) -> Path:
    """Write a temporary file in the same directory, with the permissions of a new file. Removed if writing fails."""
    umask = os.umask(0)
    os.umask(umask)
    file = tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8")  # noqa: SIM115
    try:
        with file:
            file.write(text)
        os.chmod(file.name, (0o777 if text.startswith("#!") else 0o666) & ~umask)
    except OSError:
        os.unlink(file.name)
        raise
    return Path(file.name)


def error_data(error: MeshwrightError) -> dict[str, Any]:
    """Return the public form of a refusal."""
    if isinstance(error, InputError):
        return wrong_input(error.problems)
    if isinstance(error, InfeasibleError):
        return {
            "error": error.message,
            "reasons": list(error.reasons),
            "suggestion": error.suggestion,
            "plans": [],
            **error.details,
        }
    return {"error": str(error), **error.details}


def wrong_input(problems: Iterable[Problem]) -> dict[str, Any]:
    """Return the public form of wrong input."""
    return {"error": "wrong input", "problems": [problem.to_json() for problem in problems]}


def _error_text(error: MeshwrightError, why: bool) -> str:
    if isinstance(error, InputError):
        lines = [f"  {problem}" for problem in error.problems]
        return "\n".join(["Error: the input is wrong.", *lines])
    if isinstance(error, InfeasibleError) and error.summary:
        return error.full_text if why else f"{error}\n{MORE_REASONS}"
    return str(error)


def write_tree(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts by their paths inside a folder, which is created."""
    paths = {folder / name: text for name, text in files.items()}
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule = f"cannot be made: {error.strerror or error}"
        raise InputError(Problem("output", str(folder), rule, "another path")) from error
    write_all(paths)
