"""Plans by ranges of layers: they fit, equal their simulation, and are never slower than those with one layout."""

from dataclasses import replace
from functools import cache
from math import inf

import pytest
from planning_questions import header

from meshwright.errors import InfeasibleError, InputError
from meshwright.explanation.cluster_resources import device_memory, rates
from meshwright.simulate.plan_estimate import lower_and_simulate
from meshwright.verbs.plan.layers.range_search import search_ranges, uses_ranges
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer, setting_of
from meshwright.verbs.plan.search_space import search_scope

QUESTIONS = {
    "a head of its own": ("llama-3.1-8b", "h100-sxm-80gb x 8", 4096, 64),
    "tied": ("llama-3.2-1b", "a100-sxm-40gb x 4", 4096, 16),
    "experts": ("deepseek-v2-lite", "h100-sxm-80gb x 8", 4096, 32),
    "a pipeline": ("llama-2-13b", "a100-sxm-40gb x 16", 4096, 64),
}
KEEP = {"a pipeline": {"pp": 4}}


def asked(name):
    """The header, the setting and the scope of a question."""
    model, cluster, seq_len, batch = QUESTIONS[name]
    nouns = header(model, cluster, seq_len=seq_len, batch=batch, stack="meshwright")
    setting = setting_of(nouns)
    return nouns, setting, search_scope(KEEP.get(name, {}), None, 5, setting)


@cache
def ranged(name):
    """What a search by ranges finds."""
    nouns, setting, scope = asked(name)
    return search_ranges(scope, nouns, setting)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", QUESTIONS)
def test_plans_by_ranges_fit_and_equal_their_simulation(name):
    found, (_, setting, _) = ranged(name), asked(name)
    assert any(uses_ranges(one.plan) for one in found.plans)
    for one in found.plans[:2]:
        program, simulated = lower_and_simulate(one.plan, setting)
        assert one.step_s == pytest.approx(simulated.step_s, rel=0.03)
        assert program.parts.ranks == setting.cluster.devices
        assert found.bound_s <= one.step_s
    assert 0 <= found.gap < 1
    assert list(found.plans) == sorted(found.plans, key=lambda one: (one.step_s, one.total_bytes))


def fastest_s(setting, nouns, layers):
    """The least step of a question, infinite where nothing fits."""
    try:
        return answer(
            PlanRequest(nouns, ("offload=none",), 1, layers=layers), setting
        ).fastest.report.step_time_s
    except InfeasibleError:
        return inf


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) for one in QUESTIONS])
def test_ranges_are_never_slower_and_more_of_a_cluster_never_hurts(name):
    nouns, setting, _ = asked(name)
    now = fastest_s(setting, nouns, "ranges")
    assert now <= fastest_s(setting, nouns, "uniform")
    for resource in (*rates(setting), device_memory(setting)):
        assert fastest_s(resource.scaled(1.5), nouns, "ranges") <= now * (1 + 1e-9), resource.words


def test_the_answer_has_the_long_form_the_gain_and_the_gap():
    nouns, setting, _ = asked("a head of its own")
    found = answer(
        PlanRequest(nouns, ("pp=1", "offload=none"), 3, layers="ranges", recommend="fastest"), setting
    )
    data = found.to_json()
    assert len(data["plans"][0]["long"]["layouts"]) > 1
    assert data["ranges"]["step_time_s"] == data["plans"][0]["predict"]["step_time_s"]
    assert data["ranges"]["gain"] > 0
    assert data["ranges"]["bound_s"] <= data["ranges"]["step_time_s"]
    assert data["fastest"]["long"] == data["plans"][0]["long"]
    (reason,) = data["plans"][0]["reasons"]
    assert reason["field"] == "layers"
    assert "slower" in reason["reason"]
    assert not [one for one in data["space"]["left_out"] if one["key"] == "layers"]


def test_a_search_with_one_layout_bounds_what_ranges_could_gain():
    nouns, setting, _ = asked("tied")
    found = answer(PlanRequest(nouns, ("pp=1",), 1, layers="uniform"), setting)
    (left,) = [one for one in found.space.left_out if one.key == "layers"]
    assert "at most" in left.why
    assert found.ranges is None


def test_ranges_are_searched_where_no_plan_with_one_layout_fits():
    """Balanced stages do not fit: the last one has the head besides as many layers."""
    nouns, setting, _ = asked("a pipeline")
    keep = ("pp=4", "tp=1", "dp_shard=4", "recompute=none", "virtual_stages=1", "micro_batch=1")
    keep = (*keep, "sharding=zero1", "offload=none", "offload.optimizer=none")

    def with_memory(share):
        pool = setting.cluster.pool
        device = replace(pool.device, memory_bytes=int(share * pool.device.memory_bytes))
        return replace(setting, cluster=replace(setting.cluster, pools=(replace(pool, device=device),)))

    def fits(share):
        try:
            return answer(PlanRequest(nouns, keep, 1, layers="uniform"), with_memory(share))
        except InfeasibleError:
            return None

    least, enough = 0.5, 4.0
    while enough - least > 0.005:
        middle = (least + enough) / 2
        least, enough = (least, middle) if fits(middle) else (middle, enough)
    found = answer(PlanRequest(nouns, keep, 1), with_memory(least))
    assert found.feasible == 0
    plan = found.proposals[0].long
    assert uses_ranges(plan) or plan.pipeline.stages != "balanced"
    assert found.proposals[0].report.fits
    with pytest.raises(InfeasibleError):
        answer(PlanRequest(nouns, keep, 1), with_memory(0.5))


def test_wrong_questions_name_the_option():
    nouns, setting, _ = asked("tied")
    with pytest.raises(InputError, match="no way to choose layouts"):
        answer(PlanRequest(nouns, layers="sideways"), setting)
    with pytest.raises(InputError, match="cuts stages itself"):
        answer(PlanRequest(nouns, layers="ranges", stages="time"), setting)
    other = header("llama-3.1-8b", "h100-sxm-80gb x 8", stack="torchtitan")
    with pytest.raises(InputError, match="searched with one layout and one recomputation for all layers"):
        answer(PlanRequest(other, layers="ranges"))
