"""Hold the record of the page of capacity planning against its claims, and answer a part of it again."""

import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.cost.plan_report import as_array
from meshwright.cost.uncertainty.step_draws import draws_of_step_errors, log_step_errors
from meshwright.economy.training_draws import uniforms
from meshwright.plans.forms.conversion import expand

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROOM, SUREST_MISS, UNSURE = 0.03, 0.87, 0.93
WRONG = YAML(typ="safe").load(BENCHMARKS / "capacity" / "bad-inputs.yaml")
MOST_BY_FAILURES = 1.1
"""Failures alone make the ends of an interval of days differ by less than this factor."""
SMALL = "f-lowest"
"""A question that is quickly answered."""


@pytest.fixture(scope="module")
def parts():
    sys.path.insert(0, str(BENCHMARKS))
    import capacity
    from capacity_page import page, question, simulation
    from capacity_page import record as recording

    yield {
        "main": capacity,
        "page": page,
        "question": question,
        "simulation": simulation,
        "recording": recording,
    }
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def record():
    return json.loads((BENCHMARKS / "capacity.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def questions(record):
    return {question["key"]: question for question in record["questions"]}


def test_the_page_says_what_is_recorded(parts, record):
    text = parts["main"].text_of(parts["page"].page_of(record))
    assert (BENCHMARKS / "capacity.md").read_text(encoding="utf-8") == text


def test_every_question_of_the_file_is_answered_on_the_page(parts, questions):
    asked = {question.key: question.line for question in parts["question"].read_questions()}
    assert {key: question["command"] for key, question in questions.items()} == asked


def test_simulated_trainings_keep_limits_as_often_as_is_printed(parts, record):
    rows = [row for _, row in parts["page"].compared(record)]
    assert len(rows) >= 3 * len(record["questions"])
    assert record["trainings"] == 10_000
    for row in rows:
        assert row["simulated"] == pytest.approx(row["sure"], abs=ROOM), row["cluster"]


def test_sure_choices_are_sure_and_the_next_cheaper_ones_are_not(questions):
    asked = [question for question in questions.values() if question["limits"]["sure"] == 0.9]
    kept = [row for question in asked for row in question["rows"] if row["meets"]]
    rejected = [row for question in asked for row in question["rejected"]]
    assert len(kept) >= 6
    assert rejected
    assert min(row["simulated"] for row in kept) >= SUREST_MISS
    assert max(row["simulated"] for row in rejected) < UNSURE
    assert all(not row["meets"] and row["sure"] < 0.9 for row in rejected)


def test_most_tokens_are_no_more_than_what_is_that_sure(questions):
    for row in questions["e-sure"]["rows"]:
        assert row["sure"] == pytest.approx(0.9, abs=1e-3)
        assert SUREST_MISS <= row["simulated"] < UNSURE


def test_answers_are_those_of_separate_questions(questions):
    for question in questions.values():
        assert not question["separate"]["differences"]
        assert question["separate"]["questions"] == len(question["rows"]) >= 3


def test_the_best_of_the_separate_answers_is_recommended(questions):
    for key, question in questions.items():
        if key == "d":
            continue
        worth = (lambda row: -row["tokens"]) if key.startswith("e") else (lambda row: row["usd"])
        best = min((row for row in question["rows"] if row["meets"]), key=worth)
        assert question["recommended"] == best["cluster"]


def test_the_largest_model_within_the_limits_is_recommended(questions):
    rows = questions["d"]["rows"]
    assert [row["meets"] for row in rows] == [True, True, False]
    assert questions["d"]["recommended"] == rows[1]["cluster"]


def test_an_assumed_speed_and_a_single_price_have_no_spread(questions):
    for row in questions["f-lowest"]["rows"]:
        days = [row["days_low"] / row["days"], row["days_high"] / row["days"]]
        assert [row["usd_low"] / row["usd"], row["usd_high"] / row["usd"]] == pytest.approx(days)
    usual = questions["a"]["rows"][0]
    for key in ("g-mfu", "g-efficiency"):
        row = questions[key]["rows"][0]
        assert row["days_high"] / row["days_low"] < MOST_BY_FAILURES < usual["days_high"] / usual["days_low"]


def test_published_trainings_are_those_of_the_file(record):
    asked = YAML(typ="safe").load(BENCHMARKS / "capacity" / "published.yaml")
    assert [row["name"] for row in record["published"]] == [row["name"] for row in asked]
    for row, other in zip(record["published"], asked, strict=True):
        assert row["published_hours"] == float(other["published_hours"])
        assert row["ratio"] == pytest.approx(row["predicted_hours"] / row["published_hours"])
        assert row["inside"] == (
            row["predicted_hours_low"] <= row["published_hours"] <= row["predicted_hours_high"]
        )
        assert row["sources"]
        assert all(url.startswith("https://") for _, url in row["sources"])


@pytest.mark.parametrize("asked", WRONG, ids=lambda asked: asked["what"])
def test_wrong_questions_are_refused_as_the_page_says(record, asked):
    (row,) = (row for row in record["bad_inputs"] if row["what"] == asked["what"])
    found = CliRunner().invoke(app, shlex.split(asked["command"])[1:])
    assert found.exit_code == row["exit_code"] == 2
    assert " ".join(found.stderr.split()) == row["message"]


@pytest.mark.slow
def test_a_question_is_answered_anew_as_recorded(parts, questions):
    (question,) = (one for one in parts["question"].read_questions() if one.key == SMALL)
    found = json.loads(json.dumps(parts["recording"].recorded(question)))
    assert found == {**questions[SMALL], "rows": found["rows"]}
    for row, other in zip(found["rows"], questions[SMALL]["rows"], strict=True):
        numbers = [name for name in row if isinstance(row[name], float)]
        assert {name: row[name] for name in numbers} == pytest.approx({name: other[name] for name in numbers})
        assert {**row, **{name: other[name] for name in numbers}} == other


@pytest.mark.slow
def test_simulated_errors_of_a_step_are_distributed_as_those_of_the_product(parts):
    given = parts["question"].given_by(
        'meshwright plan llama-3.1-8b --on "h100-sxm-80gb x 16" --seq-len 4096 --global-batch 64 --tokens 10B'
    )
    (cluster,) = parts["question"].answer_to(given).rows
    found = parts["simulation"].drawn_log_errors(cluster, np.random.default_rng(0), 20_000)
    setting = cluster.course.setting
    plans = as_array(expand(cluster.plan, setting.model.architecture), setting)
    own = log_step_errors(plans, setting, uniforms("a step", draws_of_step_errors()).normal)[:, 0]
    quantiles = np.linspace(0.05, 0.95, 19)
    assert np.quantile(found, quantiles) == pytest.approx(np.quantile(own, quantiles), abs=0.01)
