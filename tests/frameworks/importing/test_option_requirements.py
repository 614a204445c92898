"""Requirements between options: what holds, what is broken, and in which words."""

import pytest

from meshwright.frameworks.deepspeed.options import TABLE as DEEPSPEED
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.option_conditions import OPEN, UNKNOWN, GivenValues
from meshwright.frameworks.importing.option_requirements import (
    broken_requirements,
    read_defaults,
    read_requirements,
    requirement,
    words_of_key,
)
from meshwright.frameworks.megatron.importing.importer import import_megatron
from meshwright.frameworks.megatron.options import TABLE as MEGATRON
from meshwright.frameworks.torchtitan.importing.importer import import_torchtitan
from meshwright.frameworks.torchtitan.options import TABLE as TORCHTITAN

TABLES = {"megatron": MEGATRON, "torchtitan": TORCHTITAN, "deepspeed": DEEPSPEED}
GIVEN = {"--a": (), "--b": ("2",), "--c": ("x", "y"), "--off": ("false",), "--shell": UNKNOWN, "--open": OPEN}
NUMBERS = {"@pp": 4}


def broken(where, requires, says=""):
    given = GivenValues(GIVEN.get, NUMBERS, {"--d": "usual"})
    return list(broken_requirements([requirement(where, requires, says)], given))


@pytest.mark.parametrize(
    "requires",
    [
        *("--b", "--b=2", "--c=x,y", "--c~y", "--c*x", "--d=usual", "@pp>1", "@pp=4", "@pp>=--b", "@pp%--b"),
        *(
            "!--e",
            "!--off",
            "!--b=3",
            "!--c=x",
            "--b<3",
            "--e or --b",
            "--shell",
            "--shell=5",
            "--open",
            "!--open",
        ),
    ],
)
def test_what_holds_breaks_nothing(requires):
    assert not broken("--a", requires)


@pytest.mark.parametrize(
    "requires",
    [
        "--e",
        "--b=3",
        "--c=x",
        "--c~z",
        "--d=other",
        "@pp<=1",
        "--b%@pp",
        "!--a",
        "--off",
        "--e or --b=3",
        "never",
    ],
)
def test_what_does_not_hold_is_broken(requires):
    assert [one.option for one in broken("--a", requires)] == ["--a"]


@pytest.mark.parametrize("where", ["--a --e", "--a --shell=5", "--a --open", "--a @pp=1", "--off"])
def test_a_row_is_for_files_in_which_all_its_conditions_hold(where):
    assert not broken(where, "never")


@pytest.mark.parametrize(
    ("where", "requires", "rule", "suggestion"),
    [
        ("--a", "--e", "needs --e", "--e"),
        ("--a", "--e or --f", "needs --e, or --f", "--e"),
        ("--a", "!--b", "needs no --b", "leave --b out"),
        ("--a", "--e=x,y", "needs --e x or y", "--e x"),
        ("--a @pp>1", "--e", "needs --e with pp > 1", "--e"),
        ("--a", "@pp=1", "needs pp = 1: pp = 4", "leave --a out"),
        ("--b", "--b>=3", "must be at least 3", "leave --b out"),
        ("--a", "never", "is refused here", "leave --a out"),
    ],
)
def test_the_rule_says_what_is_required_and_with_what(where, requires, rule, suggestion):
    assert [tuple(one) for one in broken(where, requires)] == [(where.split()[0], rule, suggestion)]


def test_a_suggestion_that_breaks_another_row_is_not_made():
    given = GivenValues(GIVEN.get, NUMBERS, {})
    rows = [requirement("--a", "--e or --f"), requirement("--e", "@pp=1"), requirement("--a", "--g")]
    found = {one.rule: one.suggestion for one in broken_requirements(rows, given)}
    assert found == {"needs --e, or --f": "--f", "needs --g": "--g"}
    found = broken_requirements([*rows, requirement("--f", "!--b")], given)
    assert [one.suggestion for one in found] == ["leave --a out", "--g"]


def test_a_table_may_say_it_in_other_words():
    assert broken("--a", "never", "was replaced by --b")[0].rule == "was replaced by --b"


@pytest.mark.parametrize("name", TABLES)
def test_tables_name_options_of_the_release(name):
    table = TABLES[name]
    place = f"meshwright.frameworks.{name}", f"{table.target}-{table.release}"
    rows = read_requirements(*place)
    conditions = [c for row in rows for part in (row.where, *row.alternatives) for c in part]
    named = {c.name for c in conditions if not c.name.startswith("@")} | read_defaults(*place).keys()
    named |= {c.value for c in conditions if c.value.startswith("--")}
    assert named <= table.names
    assert not [row for row in rows if row.where[0].negated or row.where[0].name.startswith("@")]


def test_values_of_a_configuration_are_words():
    settings = ConfigValues({"on": True, "off": False, "size": 2, "names": ["a", "b"], "open": "auto"})
    found = [words_of_key(settings, key) for key in ("on", "off", "size", "names", "open", "missing")]
    assert found == [("true",), ("false",), ("2",), ("a", "b"), None, None]


def test_an_option_of_a_variable_that_only_the_shell_knows_breaks_nothing():
    script = "pretrain_gpt.py --micro-batch-size 1 --use-megatron-fsdp --ckpt-format $FORMAT"
    assert not [problem for problem in import_megatron(script).problems if problem.severity == "error"]


def test_what_a_configuration_of_ones_own_sets_is_not_missed():
    line = "--module llama3 --parallelism.pipeline_parallel_degree 2 --training.local_batch_size 2 --config "
    missed = "--parallelism.pipeline_parallel_degree"
    assert missed in [problem.field for problem in import_torchtitan(line + "llama3_8b").problems]
    assert missed not in [problem.field for problem in import_torchtitan(line + "my_own").problems]
