"""k times the devices, and k times the load, never do worse than k times the answer."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from searched_spaces import family, found, limits

from meshwright.cost.serving.levels import Level, LevelOf
from meshwright.search.serving.candidate_table import Goal
from meshwright.verbs.plan.serving.pools.two_pools import TwoPoolSearch

MODELS = (
    ("llama-3.1-8b", "h100-sxm-80gb"),
    ("llama-3.1-70b", "h200-sxm-141gb"),
    ("qwen3-30b-a3b", "h200-sxm-141gb"),
)
ENGINES = ("vllm", "sglang", "tensorrt-llm")
ENOUGH = 1 - 1e-9
"""Rounding of sums may take this part."""
QUESTIONS = {
    "model": st.sampled_from(MODELS),
    "engine": st.sampled_from(ENGINES),
    "devices": st.integers(1, 8),
    "times": st.integers(2, 4),
    "tokens": st.tuples(st.sampled_from((200, 4000, 30_000)), st.sampled_from((2, 150, 1000))),
    "ttft_s": st.sampled_from((0.3, 1.0, 2.0, 8.0, np.inf)),
    "tpot_s": st.sampled_from((0.007, 0.015, 0.03, 0.1, np.inf)),
}


def level(ttft, tpot):
    """Return the level of measured runs that take so many times the predicted seconds."""
    factors = (LevelOf(np.log(ttft), 0.1), LevelOf(np.log(tpot), 0.1), LevelOf(0.0, 0.1))
    return Level(*factors, rows=5, name="a test")


def best(model, engine, devices, asked, objective="throughput", level=None):
    table = found([family(*model, engine, devices)], asked, devices, objective, level).table
    return table[0] if len(table) else None


@settings(max_examples=8)
@given(**QUESTIONS)
@example(("llama-3.1-70b", "h200-sxm-141gb"), "tensorrt-llm", 8, 4, (4000, 1000), 2.0, 0.03)
def test_more_devices_write_as_many_tokens_each(model, engine, devices, times, tokens, ttft_s, tpot_s):
    asked = limits(*tokens, ttft_s=ttft_s, tpot_s=tpot_s)
    one = best(model, engine, devices, asked)
    if one is not None:
        more = best(model, engine, times * devices, asked)
        assert more["requests_per_s"] >= times * one["requests_per_s"] * ENOUGH


@settings(max_examples=8)
@given(**QUESTIONS, factors=st.sampled_from(((2.0, 1.1), (1.3, 0.8), (0.7, 1.2))))
def test_levels_of_measured_runs_change_nothing_of_this(
    model, engine, devices, times, tokens, ttft_s, tpot_s, factors
):
    asked, measured = limits(*tokens, ttft_s=ttft_s, tpot_s=tpot_s), level(*factors)
    one = best(model, engine, devices, asked, level=measured)
    if one is not None:
        more = best(model, engine, times * devices, asked, level=measured)
        assert more["requests_per_s"] >= times * one["requests_per_s"] * ENOUGH
        assert one["ttft_s"] <= ttft_s
        assert one["tpot_s"] <= tpot_s


@settings(max_examples=8)
@given(**QUESTIONS, clients=st.integers(1, 200))
def test_more_devices_serve_more_clients_as_quickly(
    model, engine, devices, times, tokens, ttft_s, tpot_s, clients
):
    of_limits = {"ttft_s": ttft_s, "tpot_s": tpot_s}
    one = best(model, engine, devices, limits(*tokens, concurrency=clients, **of_limits))
    if one is not None:
        more = best(model, engine, times * devices, limits(*tokens, concurrency=times * clients, **of_limits))
        assert more["requests_per_s"] >= times * one["requests_per_s"] * ENOUGH


@settings(max_examples=8)
@given(**QUESTIONS, rate=st.floats(0.1, 40))
def test_a_larger_rate_takes_no_more_devices_each(
    model, engine, devices, times, tokens, ttft_s, tpot_s, rate
):
    of_limits = {"ttft_s": ttft_s, "tpot_s": tpot_s}
    one = best(model, engine, devices, limits(*tokens, rate_per_s=rate, **of_limits), "cost")
    if one is not None:
        asked = limits(*tokens, rate_per_s=times * rate, **of_limits)
        assert best(model, engine, times * devices, asked, "cost")["devices"] <= times * one["devices"]


@settings(max_examples=8)
@given(**QUESTIONS)
def test_more_devices_cost_no_more_for_a_token(model, engine, devices, times, tokens, ttft_s, tpot_s):
    asked, goal = limits(*tokens, ttft_s=ttft_s, tpot_s=tpot_s), Goal("cost", 2.0, given_rate=False)
    one = best(model, engine, devices, asked, "cost")
    if one is not None:
        more = best(model, engine, times * devices, asked, "cost")
        scores = goal.scores(np.array([one, more], dtype=one.dtype))
        assert scores[1] >= scores[0] / ENOUGH


def test_limits_hold_for_the_mean():
    asked = limits(4000, 1000, ttft_s=2.0, tpot_s=0.03)
    for engine in ENGINES:
        table = found([family(*MODELS[1], engine)], asked, 8).table
        assert len(table) > 0
        assert (table["ttft_s"] <= 2.0).all()
        assert (table["tpot_s"] <= 0.03).all()
        assert np.allclose(table["concurrency"], table["requests_per_s"] * table["latency_s"], rtol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_bounds_rule_out_no_better_plan(engine, monkeypatch):
    asked = limits(4000, 1000, ttft_s=2.0, tpot_s=0.03)
    one = family(*MODELS[1], engine)
    pruned = found([one], asked, 8).table[0]
    monkeypatch.setattr(
        TwoPoolSearch, "approximate", lambda self, splits: np.full(len(splits), np.finfo(float).max)
    )
    assert found([one], asked, 8).table[0]["requests_per_s"] == pytest.approx(pruned["requests_per_s"])
