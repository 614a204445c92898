"""Wrong usage: text as ever, and with --json the form of every other wrong input."""

import pytest
import typer
from command_runs import command, run

from meshwright.cli.main import app
from meshwright.cli.terminal.usage_errors import EXAMPLES
from meshwright.frameworks.export_targets import TARGET_NAMES
from meshwright.frameworks.import_formats import FORMATS
from meshwright.launchers import LAUNCHERS
from meshwright.verbs.launch.launch_targets import SYSTEMS

VERBS = [verb.name for verb in app.registered_commands]
NOTHING_NEEDED = ("measure", "models", "devices", "stacks", "web")


def the_problem(*words):
    done = run(*words)
    assert (done.code, done.err) == (2, "")
    assert done.data["error"] == "wrong input"
    (problem,) = done.data["problems"]
    assert problem.keys() == {"field", "value", "rule", "suggestion", "severity"}
    assert problem["rule"]
    assert problem["suggestion"]
    return problem


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_option_of_any_verb_is_a_problem_in_json_and_text_without(verb):
    problem = the_problem(verb, "x", "--json", "--jsno", "1")
    assert (problem["field"], problem["value"]) == ("--jsno", "1")
    assert "--json" in problem["suggestion"]
    plain = run(verb, "x", "--jsno", "1")
    assert (plain.code, plain.out) == (2, "")
    assert plain.err.startswith("Usage: ")
    assert "No such option: --jsno" in plain.err


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in NOTHING_NEEDED])
def test_a_missing_argument_of_any_verb_is_a_problem_that_names_it(verb):
    problem = the_problem(verb, "--json")
    assert problem["value"] is None
    assert problem["field"] in problem["suggestion"]
    assert problem["suggestion"].startswith(f"meshwright {verb} ")


@pytest.mark.parametrize(
    ("words", "field", "value", "suggestion"),
    [
        (("plan", "m", "--json"), "--on", None, "--on 'h100-sxm-80gb x 64'"),
        (("plan", "m", "--json", "--on"), "--on", None, "--on 'h100-sxm-80gb x 64'"),
        (("plan", "m", "--on", "x", "--json"), "--seq-len", None, "--seq-len 8192"),
        (("check", "f", "--seq-len", "4q", "--json"), "--seq-len", "4q", "--seq-len 8192"),
        (("check", "f", "--json", "--seq-len=4.5k"), "--seq-len", "4.5k", "--seq-len 8192"),
        (("measure", "--json", "--budget", "long"), "--budget", "long", "--budget 8"),
        (("plann", "m", "--json"), "command", "plann", "did you mean plan or explain or launch?"),
        (("predict", "a", "b", "--json"), "command", "predict a b --json", "meshwright predict PLAN"),
    ],
)
def test_what_is_wrong_and_what_would_do(words, field, value, suggestion):
    problem = the_problem(*words)
    assert (problem["field"], problem["value"], problem["suggestion"]) == (field, value, suggestion)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "m"), "'--on'. Example: --on 'h100-sxm-80gb x 64' --seq-len 8192 --global-batch 512"),
        (("plan", "m", "--on", "x"), "'--seq-len'. Example: --seq-len 8192 --global-batch 512"),
        (("plan", "m", "--on=x", "--seq-len=8k"), "Suggestion: --global-batch 512 or --batch-range 448..576"),
        (("plan", "m", "--on=x", "--batch-range=4..8"), "'--seq-len'. Example: --seq-len 8192\n"),
        (("plan",), "Example: meshwright plan MODEL... --on 'h100-sxm-80gb x 64' --seq-len 8192"),
        (("export", "plan.yaml"), "'--to'. Example: --to megatron"),
        (("launch", "plan.yaml"), "'--on'. Example: --on slurm"),
        (("plan", "m", "--seq-len", "8q"), "'8q' is not a whole number such as 8192 or 8k"),
    ],
)
def test_what_is_left_out_comes_with_an_example(words, says):
    done = run(*words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_every_required_option_has_an_example():
    command = typer.main.get_command(app)
    required = {
        max(known.opts, key=len)
        for verb in command.commands.values()
        for known in verb.params
        if known.required and known.opts[0].startswith("-")
    }
    assert required <= EXAMPLES.keys()
    assert EXAMPLES["--to"] in TARGET_NAMES


def test_before_the_verb_there_is_no_json_option_and_that_is_said_in_json():
    assert the_problem("--json", "predict")["field"] == "--json"


def test_help_and_version_are_untouched():
    assert run("predict", "--json", "--help").out.startswith("Usage: ")
    assert run("--version").code == 0


def test_help_names_what_the_tables_hold():
    texts = {
        verb: " ".join(command(verb, "--help").stdout.decode().split())
        for verb in ("export", "import", "check", "launch")
    }
    assert ", ".join(TARGET_NAMES[:-1]) + f" or {TARGET_NAMES[-1]}." in texts["export"]
    assert ", ".join([*LAUNCHERS][:-1]) in texts["export"]
    assert ", ".join([*SYSTEMS][:-1]) + f" or {[*SYSTEMS][-1]} starts" in texts["launch"]
    for verb in ("import", "check"):
        assert ", ".join([*FORMATS][:-1]) + f" or {[*FORMATS][-1]}." in texts[verb]
