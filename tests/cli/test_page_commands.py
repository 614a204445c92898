"""The commands of all pages, in their order, as a reader would type them.

Reference pages name files that a reader has (``page_files.py``); tutorials, how-tos and concepts show all of theirs. A
block of shell is marked with ``exit=1`` where the answer is no, and with ``not-run="…"`` and the reason where it
needs what a laptop does not have; such blocks are parsed only.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import write_docs
from command_runs import run
from page_files import GIVEN
from source_tree import ROOT

FOLDERS = ("tutorials", "how-to", "concepts")
QUICK = (
    "tutorials/will-it-fit",
    "tutorials/pipeline-schedules",
    "how-to/accelerate",
    "concepts/pipeline-bubble",
)
"""Pages whose commands take a few seconds together."""
QUICK_CONCEPTS = ("matrix-products", "collectives", "pipeline-bubble")
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
START = re.compile(r"<!-- commands start in (\S+) -->")
REFERENCE = sorted(
    path.stem
    for path in (ROOT / "docs").glob("*.md")
    if re.search("^```(bash|sh)", path.read_text(), re.MULTILINE)
)
PAGES = [
    *REFERENCE,
    *sorted(f"{folder}/{path.stem}" for folder in FOLDERS for path in (ROOT / "docs" / folder).glob("*.md")),
]


class Block(NamedTuple):
    """A fenced block: its language, the file that it is, its exit code, the reason not to run it, and its text."""

    language: str
    file: str | None
    code: int
    not_run: str | None
    text: str


def blocks(name: str) -> Iterator[Block]:
    """Yield the blocks of a page."""
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for language, marks, text in BLOCK.findall(page):
        given = dict(word.partition("=")[::2] for word in shlex.split(marks))
        assert set(given) <= {"file", "exit", "not-run"}, marks
        yield Block(language, given.get("file"), int(given.get("exit", 0)), given.get("not-run"), text)


def commands(block: Block) -> list[str]:
    """Return the lines of a block of shell, with those joined that a backslash continues."""
    return block.text.replace("\\\n", " ").splitlines() if block.language in ("bash", "sh") else []


RUN = [name for name in PAGES if any(commands(block) and not block.not_run for block in blocks(name))]
"""Pages with commands that a laptop runs."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in RUN]
)
def test_every_command_does_what_the_page_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(_start(name, tmp_path))
    for block in blocks(name):
        if block.file is not None:
            Path(block.file).write_text(block.text, encoding="utf-8")
        if block.language == "python" and name not in REFERENCE:
            exec(compile(block.text, name, "exec"), {})
        for line in commands(block) if not block.not_run else ():
            program, *words = shlex.split(line, comments=True)
            assert program == "meshwright"
            done = run(*words)
            assert done.code == block.code, (line, done.err)


def _start(name: str, folder: Path) -> Path:
    """Return the folder in which the commands of a page start, with the files that its reader has."""
    if name not in REFERENCE:
        return folder
    start = START.search((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))
    if start is not None:
        shutil.copytree(ROOT / "examples", folder / "examples")
        return folder / start[1]
    for file, text in GIVEN.items():
        (folder / file).write_text(text, encoding="utf-8")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


@pytest.mark.parametrize("name", [name for name in PAGES if name not in REFERENCE])
def test_a_page_of_these_folders_has_commands(name):
    assert any(commands(block) for block in blocks(name))


@pytest.mark.parametrize(
    "path",
    [
        path if path.stem in QUICK_CONCEPTS else pytest.param(path, marks=pytest.mark.slow)
        for path in write_docs.pages()
        if path.parent.name == "concepts"
    ],
    ids=lambda path: path.stem,
)
def test_numbers_of_concepts_are_those_of_the_cost_model(path):
    text = path.read_text(encoding="utf-8")
    assert write_docs.MARKED.search(text)
    assert write_docs.rewritten(text) == text, "run `make docs`"


@pytest.mark.parametrize("name", [name for name in PAGES if name not in REFERENCE])
def test_files_are_named_above_their_text(name):
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for block in BLOCK.finditer(page):
        file = re.search(r"file=(\S+)", block[2])
        if file is not None:
            assert f"`{file[1]}`" in page[: block.start()].rstrip().split("\n\n")[-1]


@pytest.mark.parametrize("name", PAGES)
def test_what_is_not_run_is_a_command_and_has_a_reason(name):
    for block in blocks(name):
        if block.not_run is not None:
            assert len(block.not_run.split()) > 2
            assert commands(block)
            for line in commands(block):
                assert shlex.split(line, comments=True)
