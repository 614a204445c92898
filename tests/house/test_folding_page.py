"""The figures of the page on folded experts are those of the commands that stand beside them."""

import shlex

from doc_pages import page
from folding_page import DEVICES, settings


def test_the_figures_are_those_of_the_commands():
    shown = [
        line
        for line in page("folding.md").splitlines()
        if line.startswith("meshwright predict") and "--set" in line
    ]
    for file, line in zip(DEVICES, shown, strict=True):
        given = [word for setting in settings(file) for word in ("--set", setting)]
        assert shlex.split(line) == ["meshwright", "predict", file, *given]
