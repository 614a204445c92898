"""Write a notebook for each tutorial: its text, and its commands as calls of the Python functions.

    python scripts/write_notebooks.py

The keywords of the functions are the long options of the command line, so that a command says which call it is.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import typer

from meshwright.cli.main import app

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
NOTEBOOKS = ROOT / "examples" / "notebooks"
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
IMPORTS = "import meshwright as mw"
WIDTH = 110
TYPED = "COMMANDLINE"
"""How the parser calls values that were typed, not defaults."""


def call(line: str) -> str:
    """Return the Python call that does what a command does: ``mw.predict("plan.yaml", set=["tp=4"])``."""
    _, verb, *words = shlex.split(line)
    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    context = command.make_context(verb, list(words))
    positional, keywords = [], []
    for parameter in command.params:
        value = context.params.get(parameter.name)
        if context.get_parameter_source(parameter.name).name != TYPED:
            continue
        if parameter.param_type_name == "argument":
            positional += [_written(one) for one in (value if isinstance(value, list | tuple) else [value])]
            continue
        name = max(parameter.opts, key=len).lstrip("-").replace("-", "_")
        keywords.append(f"{name + '_' if name == 'from' else name}={_written(value)}")
    words = [*positional, *keywords]
    line = f"mw.{verb}({', '.join(words)})"
    if len(line) <= WIDTH:
        return line
    return f"mw.{verb}(\n" + "".join(f"    {word},\n" for word in words) + ")"


def _written(value: Any) -> str:
    if isinstance(value, Path):
        return json.dumps(str(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(_written(one) for one in value)}]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def notebook(name: str) -> str:
    """Return the notebook of a tutorial as JSON text."""
    text, cells, at = (TUTORIALS / f"{name}.md").read_text(encoding="utf-8"), [], 0
    for block in BLOCK.finditer(text):
        cells.append(("markdown", _moved(text[at : block.start()])))
        cells += [("code", code) for code in _code(*block.groups())]
        at = block.end()
    cells.append(("markdown", _moved(text[at:])))
    cells.insert(1, ("code", IMPORTS))
    data = {
        "cells": [_cell(name, number, *cell) for number, cell in enumerate(cells) if cell[1].strip()],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _code(language: str, marks: str, body: str) -> list[str]:
    """Return the cells of a block: a file that is written, Python as it is, or one for each command."""
    file = re.search(r"file=(\S+)", marks)
    if file is not None:
        return [f'from pathlib import Path\n\nPath("{file[1]}").write_text("""\\\n{body}""")']
    if language == "python":
        return [body.strip()]
    return [call(line) for line in body.splitlines()] if language == "bash" else []


def _moved(text: str) -> str:
    """Return a text whose links lead to the same pages from the folder of the notebooks."""
    return LINK.sub(lambda link: f"](../../docs/tutorials/{link[1]}", text).strip()


def _cell(name: str, number: int, kind: str, source: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "id": f"{name}-{number}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell | {"source": source.splitlines(keepends=True)}


def main() -> None:
    """Write all notebooks."""
    NOTEBOOKS.mkdir(parents=True, exist_ok=True)
    for page in sorted(TUTORIALS.glob("*.md")):
        (NOTEBOOKS / f"{page.stem}.ipynb").write_text(notebook(page.stem), encoding="utf-8")


if __name__ == "__main__":
    main()
