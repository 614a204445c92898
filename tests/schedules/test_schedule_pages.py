"""The page of schedules: a text for each, formulas that are true of played lists, pictures, commands that run."""

import re
import shlex
import xml.etree.ElementTree as ElementTree
from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
import write_docs
from doc_pages import blocks, page
from formulas import holds, letters, number
from schedule_pictures import pictures
from schedule_texts import letters_of, read_texts, texts
from typer.testing import CliRunner

from meshwright import api
from meshwright.cli.main import app
from meshwright.cluster.load import load_cluster
from meshwright.model.load import load_model
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.rules.check_plan import check_plan
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import Knobs
from meshwright.schedules.schedule_kind import ScheduleKind
from meshwright.stack.load import load_stack
from meshwright.verbs.schedule.schedule_request import ScheduleRequest

TIMES = [(1, 1, 1), (2, 2, 2), (2, 2, 1), (3, 2, 2), (1, 1, 2), (2, 3, 1)]
LEAST_CASES = 8
MOST_BYTES = 60_000


def sizes(kind, text):
    """P, M, V and a unit, as far as the schedule can have them."""
    chunks = (kind.fixed_chunks,) if kind.fixed_chunks else (2, 3) if kind.chunked else (1,)
    for p, rounds, v in product((2, 3, 4, 6), (1, 2, 3.5), chunks):
        m = int(rounds * p)
        for unit in (None, p, 2 * p) if text.unit else (None,):
            if kind.fault(p, m, Knobs(unit=unit)) is None:
                yield p, m, v, unit


def disagreements(name, text):
    """Formulas beside figures wherever they differ; fails where a formula is hardly ever put to the test."""
    formulas = [(what, formula) for what in ("bubble", "memory") for formula in getattr(text, what)]
    tried, wrong = Counter(), []
    for (p, m, v, unit), times in product(sizes(SCHEDULES[name], text), TIMES):
        asked = ScheduleRequest(
            stages=p, micro_batches=m, chunks=v, unit=unit, times=",".join(map(str, (*times, 0)))
        )
        figures = api.schedule(name, asked).figures
        found = {"bubble": (figures.makespan - m * sum(times),), "memory": figures.peak_memory}
        known = letters_of(text, p, m, v, times, unit)
        for key in formulas:
            what, formula = key
            if holds(formula.where, known):
                tried[key] += 1
                if not agrees(formula, found[what], known):
                    wrong.append((what, formula.text, asked, found[what]))
    assert min(tried[key] for key in formulas) >= LEAST_CASES, tried
    return wrong


def agrees(formula, found, known):
    """Rank by rank where the formula speaks of ranks, else the largest one."""
    found = found if formula.of_ranks else (max(found),)
    values = [float(number(formula.text, known | {"r": Fraction(r)})) for r in range(len(found))]
    if formula.equals is not None:
        return list(found) == pytest.approx(values)
    return all(one <= value + 1e-9 for one, value in zip(found, values, strict=True))


def test_every_schedule_has_a_text_in_the_order_of_the_table():
    assert list(texts()) == list(SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_formulas_are_true_of_the_lists(name):
    assert disagreements(name, texts()[name]) == []


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_has_a_bubble_that_is_exact_and_a_memory_that_is_bounded(name):
    text = texts()[name]
    assert any(formula.equals for formula in text.bubble)
    assert all((f.equals is None) != (f.at_most is None) for f in (*text.bubble, *text.memory))


@pytest.mark.parametrize("wrong", ["P·(F + I − W)", "(P − 1)·(F + I − W)/2", "(P − 1)·(F + W)"])
def test_a_wrong_formula_is_noticed(wrong):
    text = texts()["zb-h1"]
    bubble = text.bubble[0].model_copy(update={"equals": wrong})
    assert disagreements("zb-h1", text.model_copy(update={"bubble": (bubble,)}))


def test_letters_of_formulas_are_explained():
    table = page("schedules.md").partition("## Letters")[2].partition("##")[0]
    explained = {
        letter for cell in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for letter in cell.split(", ")
    }
    for text in texts().values():
        for formula in (*text.bubble, *text.memory):
            assert letters(formula.text) | letters(formula.where or "0") <= explained


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("⌊7·P/2⌋ − 3", 21),
        ("⌈P/2⌉", 4),
        ("2·min(M, P − 1)/3", 4),
        ("max(0, 1 − P)", 0),
        ("(0 − P − 1)·2", -16),
    ],
)
def test_formulas_come_to_what_they_say(formula, value):
    assert number(formula, {"P": 7, "M": 9}) == value


def test_conditions_and_what_no_formula_is():
    assert holds("P = M ≤ 4 and M mod 2 = 0", {"P": 4, "M": 4})
    assert not holds("P = M ≤ 3 and M mod 2 = 0", {"P": 4, "M": 4})
    for text in ("Q + 1", "P ** 2", "open(P)", "P.real"):
        with pytest.raises(KeyError):
            number(text, {"P": 4})


def test_pictures_are_fresh_small_and_shown():
    drawn, shown = pictures(), re.findall(r"!\[[^\]]+\]\(schedules/([^)]+)\)", page("schedules.md"))
    assert {path.name for path in write_docs.PICTURES.iterdir()} == set(drawn) == set(shown)
    for name, text in drawn.items():
        assert (write_docs.PICTURES / name).read_text(encoding="utf-8") == text, "run `make docs`"
        assert len(text.encode()) < MOST_BYTES
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert "prefers-color-scheme:dark" in text


def test_the_table_leads_to_every_part():
    text = page("schedules.md")
    assert re.findall(r"^\| \[`([^`]+)`\]\(#\1\) \|", text, re.MULTILINE) == list(SCHEDULES)
    assert [name for name in SCHEDULES if f"\n### {name}\n" not in text] == []


def test_the_commands_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (plan,) = blocks("schedules.md", "yaml")
    (tmp_path / "plan.yaml").write_text(plan, encoding="utf-8")
    for line in "".join(blocks("schedules.md", "bash")).splitlines():
        program, *arguments = shlex.split(line)
        done = CliRunner().invoke(app, arguments)
        assert (program, done.exit_code) == ("meshwright", 0), f"{line}: {done.output}"


def test_the_plan_of_the_page_is_legal():
    short = parse_plan(blocks("schedules.md", "yaml")[0])
    model = load_model(short.model)
    plan = expand(short, model.architecture)
    assert check_plan(plan, model, load_cluster(short.cluster), load_stack(short.stack)) == []
    assert f"`{list(plan.pipeline.placement)}`" in page("schedules.md")


def test_the_playbook_of_schedules_has_a_text_that_is_true(monkeypatch):
    function, entry, _ = blocks("add-a-schedule.md", "python")
    names = {"ScheduleKind": ScheduleKind}
    exec(compile(function + "\nentry = {" + entry + "}", "playbook", "exec"), names)
    ((name, text),) = read_texts(blocks("add-a-schedule.md", "yaml")[0]).items()
    monkeypatch.setitem(SCHEDULES, name, names["entry"][name])
    assert disagreements(name, text) == []
