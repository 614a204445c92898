"""Laws of every option table: what a row writes is read back, and an option is named in one place."""

import ast
import random
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import meshwright.frameworks
from meshwright.frameworks.importing.command_line import CommandLine, GivenOption
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.nested_keys import is_known, nested_keys
from meshwright.frameworks.option_table import (
    LEFT_OUT,
    ComputedRow,
    OptionRow,
    always,
    nested,
    read_facts,
    written_options,
    written_values,
)

FOLDERS = {
    path.parent.name: path.parent for path in Path(meshwright.frameworks.__path__[0]).glob("*/options.py")
}
NUMBERS = 20
TABLES = {name: import_module(f"meshwright.frameworks.{name}.options").TABLE for name in sorted(FOLDERS)}
ROWS = [(name, row) for name, table in TABLES.items() for row in table.rows if isinstance(row, OptionRow)]


def _read_back(row, value):
    """Write one fact and return the facts of the file, with its problems."""
    facts = {row.path: value}
    if row.option.startswith("--"):
        given = [GivenOption(name, tuple(words), 1) for name, *words in written_options([row], facts)]
        values = CommandLine({option.name: option for option in given}, [])
    else:
        tree = nested(written_values([row], facts))
        values = ConfigValues({".".join(path): value for path, value in nested_keys(tree)})
    return read_facts([row], values), values.problems


def test_every_framework_with_files_has_a_table():
    exporting = {
        path.parent.parent.name
        for path in Path(meshwright.frameworks.__path__[0]).glob("*/exporting/exporter.py")
    }
    assert set(TABLES) == exporting


@pytest.mark.parametrize(("name", "row"), ROWS, ids=lambda part: getattr(part, "option", part))
def test_what_a_row_writes_is_read_back_as_the_same_fact(name, row):
    rng = random.Random(f"{name} {row.option}")
    written = replace(row, when=always)
    for value in row.codec.known or [rng.randint(1, 2**20) for _ in range(NUMBERS)]:
        found, problems = _read_back(written, value)
        assert problems == []
        if found or value is not False:  # a flag that is off and has no default says nothing
            assert found[row.path].value == value


@pytest.mark.parametrize("name", TABLES)
def test_every_option_is_one_of_the_release_and_stands_in_the_table_once(name):
    options = [row.option for row in TABLES[name].rows]
    assert len(options) == len(set(options))
    assert [option for option in options if not _is_accepted(TABLES[name], option)] == []


def _is_accepted(table, option):
    if option.startswith("--"):
        return option in table.names | table.other_names
    path = tuple(option.split("."))
    return is_known(path, table.names)


@pytest.mark.parametrize("name", TABLES)
def test_no_other_file_of_the_framework_writes_an_option_of_the_table(name):
    table = TABLES[name]
    options = {row.option for row in table.rows} | {
        row.option.rpartition(".")[2] for row in table.rows if name == "accelerate"
    }
    sections = {known.partition(".")[0] for known in table.names if "." in known}
    found = {
        f"{path.parent.name}/{path.name}: {text}"
        for part in ("exporting", "importing")
        for path in (FOLDERS[name] / part).glob("*.py")
        for text in _texts(path)
        if text in options - sections
    }
    assert found == set()


@pytest.mark.parametrize("name", TABLES)
def test_the_table_names_every_option_once(name):
    texts = _texts(FOLDERS[name] / "options.py")
    assert [row.option for row in TABLES[name].rows if texts.count(row.option) > 1] == []


def _texts(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_defaults_are_values_of_their_facts_and_agree_with_what_is_written_over_a_recipe():
    megatron = {
        row.path: row.default
        for row in TABLES["megatron"].rows
        if isinstance(row, OptionRow) and row.default is not None
    }
    for _, row in ROWS:
        if row.default is not None:
            assert row.default in row.codec.known
        if row.otherwise not in (LEFT_OUT, None) and row.path in megatron:
            assert row.otherwise == megatron[row.path]
    assert megatron


def test_a_computed_value_that_is_left_open_is_not_written_on_a_command_line():
    rows = [
        ComputedRow("--a", lambda facts: None),
        ComputedRow("--b", lambda facts: (1, 2)),
        ComputedRow("--c", lambda facts: True),
    ]
    assert written_options(rows, {}) == [("--b", "1", "2"), ("--c",)]
    assert nested(
        written_values([ComputedRow("a.b", lambda facts: (1,)), ComputedRow("c", lambda facts: None)], {})
    ) == {"a": {"b": [1]}, "c": None}
