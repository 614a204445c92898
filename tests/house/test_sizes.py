"""Small files, small functions, and a package that grows only on purpose."""

import ast
from statistics import median

from source_tree import PACKAGE, ROOT, modules, nodes

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80
MAX_MEDIAN_FUNCTION_LINES = 10
MAX_CLASS_METHODS = 15
MAX_CLASS_LINES = 200
MAX_PACKAGE_LINES = 156_000  # raise it on purpose, in a commit that says why

LONG_FUNCTIONS: dict[str, str] = {}  # "file.py:name": why it cannot be cut
LARGE_CLASSES = {
    "cost/closed_form/group_stages.py:GroupStages": "the stages and elements of PlanGroup, cached properties too",
    "cost/closed_form/plan_group.py:PlanGroup": "cached properties, shared by the closed forms of time and memory",
    "stack/stack.py:Stack": "one field and one line of text per fact of a framework",
    "model/families/config_fields.py:Fields": "one reading method per type of value, four for problems, one end",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _file_lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def _lines(node):
    return node.end_lineno - node.lineno + 1


def _named(kind):
    for path in modules():
        for node in nodes(path):
            if isinstance(node, kind):
                yield f"{path.relative_to(PACKAGE).as_posix()}:{node.name}", node


def _code_files():
    places = ("src", "tests", "scripts")
    return sorted(path for place in places for path in (ROOT / place).rglob("*.py"))


def test_files_are_short():
    lengths = {path.relative_to(ROOT).as_posix(): _file_lines(path) for path in _code_files()}
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES}


def test_functions_are_short():
    long = {name: _lines(node) for name, node in _named(Function) if _lines(node) > MAX_FUNCTION_LINES}
    assert long.keys() == LONG_FUNCTIONS.keys(), long


def test_the_middle_function_is_very_short():
    assert median(_lines(node) for _, node in _named(Function)) <= MAX_MEDIAN_FUNCTION_LINES


def test_classes_are_small():
    large = {
        name: f"{_methods(node)} methods, {_lines(node)} lines"
        for name, node in _named(ast.ClassDef)
        if _methods(node) > MAX_CLASS_METHODS or _lines(node) > MAX_CLASS_LINES
    }
    assert large.keys() == LARGE_CLASSES.keys(), large


def _methods(node):
    return sum(isinstance(child, Function) for child in node.body)


def test_the_package_stays_below_its_ceiling_and_the_ceiling_near_the_package():
    lines = sum(map(_file_lines, modules()))
    assert 0.75 * MAX_PACKAGE_LINES <= lines <= MAX_PACKAGE_LINES
