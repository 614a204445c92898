"""The public form of an explanation: numbers agree with each other, sentences with the numbers."""

import json

import pytest
from explained_cases import (
    every_case,
    explained_best,
    explained_plain,
    explained_too_large,
    in_full,
    subject,
)

from meshwright.explanation.breakdown import CostBreakdown
from meshwright.explanation.plan_difference import ExplainedPlan
from meshwright.explanation.schedule_alternatives import schedule_alternatives
from meshwright.units import format_bytes, format_seconds
from meshwright.verbs.predict.predict_plan import predicted


def _data(explained):
    return json.loads(json.dumps(explained.to_json(), allow_nan=False))


def test_the_prediction_is_that_of_predict():
    for explained in every_case():
        assert explained.to_json()["predict"] == predicted(explained.subject.resolved).to_json()


def test_shares_of_time_and_memory_are_of_the_whole():
    for explained in every_case():
        data = _data(explained)
        time, memory = data["time"], data["memory"]
        assert sum(part["seconds"] for part in time["parts"]) == pytest.approx(time["step_time_s"])
        assert sum(part["share"] for part in time["parts"]) == pytest.approx(1)
        assert sum(part["bytes"] for part in memory["parts"]) == memory["total"]
        assert sum(part["share"] for part in memory["parts"]) == pytest.approx(1)
        assert memory["headroom"] == pytest.approx(memory["usable"] - memory["total"])
        assert memory["fits"] == (memory["headroom"] >= 0)


def test_the_largest_part_of_both_comes_first():
    for explained in every_case():
        data = _data(explained)
        for parts, key in ((data["time"]["parts"], "seconds"), (data["memory"]["parts"], "bytes")):
            assert [part[key] for part in parts] == sorted((part[key] for part in parts), reverse=True)


def test_what_binds_most_comes_first_and_is_named():
    for explained in every_case():
        data = _data(explained)
        elasticity = {one["resource"]: one["elasticity"] for one in data["sensitivity"]}
        assert data["binds"] == sorted(elasticity, key=elasticity.get)
        words = {one.resource.name: one.resource.words for one in explained.sensitivities}
        assert words[data["binds"][0]] in data["summary"][0]


def test_sentences_hold_the_numbers():
    for explained in every_case():
        data = _data(explained)
        text = " ".join([*data["time"]["text"], *data["memory"]["text"]])
        assert format_seconds(data["time"]["step_time_s"]) in text
        assert format_bytes(data["memory"]["total"]) in text
        assert format_bytes(data["memory"]["least_capacity"]) in text
        assert "predicted" in text


def test_where_the_plan_stands():
    assert "No plan that was seen is quicker" in explained_best().summary[1]
    assert "A quicker plan is known, beyond a tie" in explained_plain().summary[1]
    assert "It does not fit; the quickest seen that does" in explained_too_large().summary[1]


def test_rivals_are_other_plans_and_no_more_than_asked():
    for explained in every_case():
        assert 0 < len(explained.rivals) <= 3
        assert all(rival.changes and rival.forecast.fits for rival in explained.rivals)


def test_the_schedule_beside_one_f_one_b_and_beside_what_is_refused():
    found = schedule_alternatives(subject(pipeline={"schedule": "interleaved-1f1b", "virtual_stages": 2}))
    assert [name for name, _ in found.others] == ["1f1b"]
    assert "1f1b at the same degrees: " in found.text
    odd = schedule_alternatives(subject(layout={"pp": 2, "dp_shard": 4}, pipeline={"micro_batch": 8}))
    assert [one.name for one in odd.refused] == ["interleaved-1f1b"]
    assert "micro-batches % pp = 1 % 2 = 1" in odd.refused[0].rule


def test_a_schedule_tells_its_knobs_and_what_it_keeps_to():
    own = {"stack": "meshwright", "pipeline": {"schedule": {"name": "zero-bubble", "memory_limit": 0.5}}}
    found = schedule_alternatives(subject(layout={"pp": 4, "tp": 2}, sharding="none", **own))
    assert found.knobs == ("memory_limit",)
    assert "No rank holds more than 0.5 times what 1F1B holds." in found.text
    assert "Its knobs: memory_limit." in found.text
    assert schedule_alternatives(subject(layout={"dp_shard": 8})).text == (
        "There is no pipeline: one stage has the whole model."
    )


def test_a_length_that_no_run_had_is_called_extrapolated_with_its_kernel():
    long = {"workload": {"seq_len": 2**20, "global_batch": 8}, "stack": "torchtitan"}
    texts = CostBreakdown.of(subject(layout={"cp": 8}, sharding="none", **long)).time_text
    (sentence,) = (text for text in texts if text.startswith("Extrapolated: the attention kernel"))
    assert "at 1,048,576 tokens: the runs behind the prediction have" in sentence
    usual = CostBreakdown.of(subject(layout={"dp_shard": 8}, sharding="zero1")).time_text
    assert not any("attention kernel" in text for text in usual)


def test_a_plan_that_only_a_simulation_knows_has_its_parts_and_says_what_is_missing():
    full = ExplainedPlan.of(in_full(sharding="zero3", gather="per-layer", stack="meshwright"))
    data = CostBreakdown.of(full).time_json()
    assert data["passes_s"] is None
    assert data["pipeline_s"] is None
    assert sum(part["seconds"] for part in data["parts"]) == pytest.approx(data["step_time_s"])
    assert "known to the simulation only" in data["text"][-1]
