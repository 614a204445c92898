"""Choosing the global batch from a range, against asking for every batch by itself."""

from dataclasses import replace

import pytest
from cluster_questions import KEEP, question

from meshwright.api import plan
from meshwright.economy.budget_and_deadline import Limits
from meshwright.errors import InfeasibleError, InputError
from meshwright.verbs.plan.clusters.batch_choice import BatchRange, batch_or_range, parse_batch_range
from meshwright.verbs.plan.clusters.choose_cluster import choose
from meshwright.verbs.plan.clusters.cluster_request import ClusterChoiceRequest, question_on

RANGE = BatchRange(21, 27)
SIZES = ("h100-sxm-80gb x 8", "h100-sxm-80gb x 10", "h100-sxm-80gb x 12")


def chosen(on=SIZES, batches=RANGE, tokens="10B", objective="cost", limits=Limits(), **changes):  # noqa: B008
    return choose(question(**changes), ClusterChoiceRequest(on, objective, limits, tokens, batches=batches))


def alone(on, batch, tokens="10B", objective="cost"):
    """The answer for one batch, or None."""
    header = question().header
    workload = header.workload.model_copy(update={"global_batch": batch})
    asked = replace(question(), header=header.model_copy(update={"workload": workload}))
    try:
        return choose(asked, ClusterChoiceRequest(on, objective, tokens=tokens))
    except InfeasibleError:
        return None


def batch_of(found):
    return found.proposals[0].plan.workload.global_batch


@pytest.mark.parametrize(
    "size", [SIZES[1], *(pytest.param(size, marks=pytest.mark.slow) for size in SIZES[::2])]
)
def test_no_batch_of_the_range_is_better(size):
    found = chosen((size,))
    every = {batch: alone((size,), batch) for batch in range(RANGE.low, RANGE.high + 1)}
    dollars = {batch: one.standings[0].costs.usd for batch, one in every.items() if one}
    assert found.standings[0].costs.usd == pytest.approx(min(dollars.values()), rel=2e-3)
    assert found.standings[0].costs.usd == pytest.approx(dollars[batch_of(found)], rel=1e-9)
    assert batch_of(found) in RANGE.candidates(found.standings[0].offer.cluster.devices)


def test_clusters_have_the_best_batch_each():
    found = chosen()
    assert [standing.offer.on for standing in found.standings] == list(SIZES)
    for standing in found.standings:
        if standing.state == "searched":
            (same,) = chosen((standing.offer.on,)).standings
            assert standing.costs.usd == pytest.approx(same.costs.usd, rel=1e-9)


def test_without_tokens_throughput_is_per_token():
    found = chosen(("h100-sxm-80gb x 10",), tokens=None, objective="throughput")
    data = found.to_json()
    rates = {
        batch: one.proposals[0].report.tokens_per_s
        for batch in range(RANGE.low, RANGE.high + 1)
        if (one := alone(("h100-sxm-80gb x 10",), batch, None, "throughput"))
    }
    assert found.proposals[0].report.tokens_per_s == pytest.approx(max(rates.values()), rel=2e-3)
    assert data["per"] == "27 sequences"


def test_the_answer_is_that_of_its_batch_and_says_so():
    found = chosen(("h100-sxm-80gb x 12",), top=3)
    batch = batch_of(found)
    same = alone(("h100-sxm-80gb x 12",), batch)
    assert found.proposals[0].plan == same.proposals[0].plan
    assert any(f"global batch {batch}" in remark for remark in found.proposals[0].report.remarks)


def test_candidates_are_the_largest_multiples():
    assert BatchRange(448, 576).candidates(240)[:3] == (576, 575, 574)
    assert BatchRange(5, 5).candidates(4) == (5,)
    for devices in (3, 8):
        found = BatchRange(40, 70).candidates(devices)
        units = [
            part * size for part in range(1, devices + 1) if devices % part == 0 for size in range(1, 65)
        ]
        assert {70 - 70 % unit for unit in units if 70 - 70 % unit >= 40} <= set(found)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("576..448", "is empty"),
        ("0..8", "1 or more"),
        ("448", "two whole numbers"),
        ("a..b", "two whole numbers"),
        ("-4..8", "two whole numbers"),
        ("8...9", "two whole numbers"),
    ],
)
def test_wrong_ranges_are_refused(text, rule):
    with pytest.raises(InputError) as error:
        parse_batch_range(text)
    (problem,) = error.value.problems
    assert (problem.field, problem.value) == ("batch-range", text)
    assert rule in problem.rule
    parse_batch_range(problem.suggestion.removeprefix("--batch-range "))


def test_a_question_has_a_batch_or_a_range():
    assert batch_or_range(8, None) is None
    assert batch_or_range(None, "4..8") == BatchRange(4, 8)
    for both in ((None, None), (8, "4..8")):
        with pytest.raises(InputError, match="batch"):
            batch_or_range(*both)


def test_options_of_one_batch_are_refused():
    with pytest.raises(InputError, match="one global batch"):
        plan(
            "llama-3.2-1b",
            on="h100-sxm-80gb x 8",
            seq_len=2048,
            batch_range="20..30",
            keep=KEEP,
            stages="time",
        )


def test_a_question_keeps_its_batch():
    asked = question()
    offer = type("Offer", (), {"on": "h100-sxm-80gb x 8"})()
    assert question_on(asked, offer).header.workload == asked.header.workload
    assert question_on(asked, offer, 30).header.workload.global_batch == 30
