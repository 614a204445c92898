"""Every problem that a reader can name has something concrete to do beside it."""

import ast
import re

import pytest
from source_tree import PACKAGE, modules, nodes

READERS = ("plans", "frameworks", "ingestion", "cluster", "workload", "stack", "cli", "verbs")
VAGUE = re.compile(r"…|^(smaller degrees|other numbers|add it|add them|fewer|take fewer|a multiple of)")


def _calls(path):
    for node in nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem":
            yield node.lineno, node.args[3:4] + [k.value for k in node.keywords if k.arg == "suggestion"]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "problem":
            yield node.lineno, node.args[2:3] + [k.value for k in node.keywords if k.arg == "suggestion"]


@pytest.mark.parametrize("folder", READERS)
def test_every_problem_has_a_suggestion_that_says_what_to_write(folder):
    empty, vague, seen = [], [], 0
    for path in modules():
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(f"{folder}/"):
            continue
        for line, suggestions in _calls(path):
            seen += 1
            texts = [node.value for node in suggestions if isinstance(node, ast.Constant)]
            if not suggestions or "" in texts:
                empty.append(f"{name}:{line}")
            vague += [f"{name}:{line}: {text}" for text in texts if VAGUE.search(text)]
    assert seen
    assert not empty
    assert not vague
