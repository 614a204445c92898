"""The default answer of ``plan``: its size and what it tells."""

import copy
import re

import pytest
from rendered_text import HOSTILE, rendered

from meshwright import api
from meshwright.present.console import shown_mfu
from meshwright.present.plan_answers.summary import render_summary
from meshwright.search.choice_reasons import strongest_reasons
from meshwright.search.reasons import Reason
from meshwright.units import format_seconds

LONG = "a very long name of a file or a cluster " * 12


@pytest.fixture(scope="module")
def answers():
    question = {"seq_len": 8192, "global_batch": 16}
    one = api.plan("llama-3.2-1b", on="h100-sxm-80gb x 4", top=7, tokens="1T", **question)
    several = api.plan("llama-3.2-1b", on=["h100-sxm-80gb x <=4", "a100-sxm-80gb x 2"], **question)
    return one, several


def summary(answer, data=None, written=()):
    fields = [reason.field for reason in strongest_reasons(answer.proposals[0].reasons)]
    return rendered(render_summary, data or answer.to_json(), written, fields)


def test_tells_plan_memory_reasons_limits_and_next_step(answers):
    answer, _ = answers
    text, report = summary(answer), answer.proposals[0].report
    assert format_seconds(report.step_time_s) in text
    assert "GiB on the fullest device (pipeline rank 0): parameters" in text
    for reason in strongest_reasons(answer.proposals[0].reasons):
        assert f"{reason.field} {reason.value}: " in text
    assert all(title in text for title in ("Memory", "Why", "What binds", "Next", "--why"))
    assert "tokens, " in text


def test_warns_of_a_plan_that_perhaps_does_not_fit(answers):
    data = answers[0].to_json()
    for probability, told in ((0.66, True), (0.95, False), (None, False)):
        data["plans"][0]["predict"]["fits_probability"] = probability
        assert ("It fits with a probability of 66% only" in summary(answers[0], data)) == told


def test_says_why_the_interval_is_wide_and_what_narrows_it(answers):
    data = copy.deepcopy(answers[0].to_json())
    interval = data["plans"][0]["predict"]["interval"]
    assert interval["stack"] in ("seen", "unseen")
    for advice in ("No runs of megatron-core like this were seen: ±21%.", None):
        interval["advice"] = advice
        assert ("No runs of megatron-core" in summary(answers[0], data)) == bool(advice)


def test_has_at_most_40_lines_of_100_columns(answers):
    for answer in answers:
        data = copy.deepcopy(answer.to_json())
        data |= {"candidates_unplayed": 10**9, "candidates_tied": 10**9, "gap": 0.1}
        best = data["plans"][0]
        best["plan"]["cluster"] = LONG
        best["predict"]["fits_probability"] = 0.1
        best["predict"]["interval"]["advice"] = LONG
        for kind in ("buffers", "working"):
            best["predict"]["memory_bytes"]["stages"][0][kind] = 10**12
        for reason in best["reasons"]:
            reason["reason"] = LONG + HOSTILE
        for row in data["clusters"]:
            row["cluster"] = LONG
        text = summary(answer, data, [LONG, LONG])
        assert len(text.splitlines()) <= 40
        assert max(map(len, text.splitlines())) <= 100


def test_strongest_reasons_cost_most():
    losses = {"pp": 0.1, "tp": float("inf"), "cp": 0.0, "ep": 0.3}
    reasons = [Reason(field, "1", "", loss) for field, loss in losses.items()]
    assert [reason.field for reason in strongest_reasons(reasons)] == ["tp", "ep", "pp"]


@pytest.mark.slow
def test_the_loss_is_that_of_the_best_other_value(answers):
    for reason in answers[0].proposals[0].reasons:
        shown = re.search(r"([\d.]+)% slower", reason.text)
        if shown and "equal" not in reason.text and "faster" not in reason.text:
            assert reason.loss == pytest.approx(float(shown[1]) / 100, abs=0.0006)


@pytest.mark.parametrize(
    ("mfu", "causal", "name"),
    [(0.5, 0.48, "MFU"), (0.5, 0.47, "causal MFU"), (None, None, "MFU"), (0.5, None, "MFU")],
)
def test_the_causal_mfu_is_shown_where_it_differs_by_more_than_5_percent(mfu, causal, name):
    shown = shown_mfu({"mfu": mfu, "mfu_causal": causal})
    assert shown == (name, causal if name == "causal MFU" else mfu)
