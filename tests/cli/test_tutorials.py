"""The commands of the tutorials, in their order, as a reader would type them; ``exit=1`` where the answer is no."""

import re
import shlex

import pytest
from command_runs import run
from source_tree import ROOT

FOLDER = ROOT / "docs" / "tutorials"
QUICK = ("will-it-fit", "pipeline-schedules")
"""Tutorials whose commands take a few seconds together."""
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TUTORIALS = sorted(path.stem for path in FOLDER.glob("*.md"))


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TUTORIALS]
)
def test_every_command_does_what_the_page_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    count = 0
    for language, marks, body in BLOCK.findall(text):
        file = re.search(r"file=(\S+)", marks)
        if file is not None:
            (tmp_path / file[1]).write_text(body, encoding="utf-8")
        for line in body.splitlines() if language == "bash" else ():
            program, *words = shlex.split(line)
            assert program == "meshwright"
            done = run(*words)
            assert done.code == int("exit=1" in marks), (line, done.err)
            count += 1
    assert count
