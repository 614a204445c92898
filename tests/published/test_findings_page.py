"""The page of findings: it is what the scripts make, and the sentences in bold are true of computed numbers."""

import xml.etree.ElementTree as ElementTree
from math import inf

import findings
import pytest
import write_docs

H100, A100 = findings.SHARDED_ON
FEWEST, MOST = findings.SHARDED_SIZES[0], findings.SHARDED_SIZES[-1]


@pytest.mark.slow
def test_the_page_and_its_pictures_are_what_the_scripts_make():
    path = write_docs.DOCS / "findings.md"
    text = path.read_text(encoding="utf-8")
    assert write_docs.rewritten(text) == text, "run `make docs`"
    drawn = findings.charts()
    assert {found.name for found in write_docs.CHARTS.iterdir()} == set(drawn)
    for name, picture in drawn.items():
        assert (write_docs.CHARTS / name).read_text(encoding="utf-8") == picture, "run `make docs`"
        assert f"(findings/{name})" in text
        assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert "prefers-color-scheme:dark" in picture


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("device", [H100, A100])
def test_the_rate_of_a_device_falls_with_their_number(device):
    rates = [findings.sharded_rate(device, size, 1) for size in findings.SHARDED_SIZES]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 1.05 * rates[-1]


def test_the_faster_device_loses_more_and_about_what_was_published():
    assert findings.sharded_fall(A100) < findings.sharded_fall(H100)
    assert 0.30 < findings.sharded_fall(H100) < 0.44


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("device", [H100, A100])
def test_what_tp_costs_shrinks_with_the_number_of_devices(device):
    beside = [
        findings.sharded_rate(device, size, 2) / findings.sharded_rate(device, size, 1)
        for size in (FEWEST, MOST)
    ]
    assert beside[0] < beside[1]
    assert beside[0] < 1


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("tp", [2, 4])
def test_a_small_tp_wins_on_the_most_of_the_faster_devices(tp):
    assert findings.sharded_rate(H100, MOST, tp) > findings.sharded_rate(H100, MOST, 1)


def test_what_tp_costs_shrinks_more_on_the_faster_device():
    gains = {
        device: findings.sharded_rate(device, MOST, 2)
        / findings.sharded_rate(device, MOST, 1)
        / (findings.sharded_rate(device, FEWEST, 2) / findings.sharded_rate(device, FEWEST, 1))
        for device in (H100, A100)
    }
    assert gains[H100] > gains[A100]


def test_weak_scaling_is_flat_and_strong_scaling_falls_less_than_was_measured():
    ends = []
    for case in findings.FRONTIER:
        weak = [findings.frontier_efficiency(case, size, weak=True) for size in case.sizes]
        strong = [findings.frontier_efficiency(case, size, weak=False) for size in case.sizes]
        assert min(weak) > 0.97
        assert strong == sorted(strong, reverse=True)
        assert case.published_strong < strong[-1] < weak[-1]
        ends.append(strong[-1])
    assert ends == sorted(ends, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("question", findings.INSIDE, ids=lambda question: f"{question[0]} on {question[1]}")
def test_leaving_the_node_with_tp_gains_nothing_that_a_prediction_can_tell(question):
    tp, seconds = findings.inside(question)
    assert tp <= findings.domain_of(question)
    assert seconds < inf
    assert findings.crossing(question)[1] > -0.02


@pytest.mark.slow
def test_crossing_costs_the_largest_models_a_few_percent():
    costs = {question[0]: findings.crossing(question)[1] for question in findings.INSIDE}
    assert costs["gpt-1008b"] < 0.06
    assert costs["gpt-529.6b"] < 0.06


@pytest.mark.slow
@pytest.mark.parametrize(("model", "cluster"), list(findings.LENGTHS))
def test_only_long_sequences_need_a_fourth_dimension(model, cluster):
    degrees = {
        length: findings.best_s((model, cluster, length, findings.TOKENS_PER_STEP // length))[1]["cp"]
        for length in (findings.SHORT, findings.LONG)
    }
    assert degrees[findings.SHORT] == 1 < degrees[findings.LONG]
    assert findings.four_gain(model, cluster, findings.SHORT) == 0
    assert findings.four_gain(model, cluster, findings.LONG) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("case", findings.GROWING, ids=lambda case: case[0])
def test_nothing_falls_below_four_fifths(case):
    assert all(findings.growth_of(*case, times) >= 0.8 for times in findings.TIMES)
