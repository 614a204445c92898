"""Levels, their intervals, and Little's law for levelled times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cost.serving.levels import (
    ANY,
    METRICS,
    NO_LEVEL,
    Effect,
    Group,
    Level,
    LevelOf,
    LevelTable,
    LoadKind,
    ServedMeans,
    Spread,
    SpreadKey,
    interval,
    level_of,
    level_with,
    levelled,
    shipped_levels,
    shipped_spreads,
    spread_in,
)

KNOWN = Group("llama-3.1-70b", "h200-sxm-141gb", "tensorrt-llm")
SPREADS = {
    SpreadKey("ttft", ANY, ANY): Spread(0.3, 0.4, 0.5, 0.6),
    SpreadKey("tpot", "vllm", "one"): Spread(0.2, 0.1, 0.12, 0.25),
    SpreadKey("tpot", ANY, ANY): Spread(0.2, 0.3, 0.4, 0.5),
    SpreadKey("throughput", ANY, ANY): Spread(0.2, 0.3, 0.4, 0.9),
}
factors = st.floats(-2, 2)
positive = st.floats(1e-3, 1e3)


def a_level(ttft=0.0, tpot=0.0, throughput=0.0):
    return Level(LevelOf(ttft, 0.2), LevelOf(tpot, 0.2), LevelOf(throughput, 0.2), 3, "a")


def loads(concurrency=np.nan, rate=np.nan, steps=99.0, *, waits=False):
    return LoadKind(np.array([concurrency]), np.array([rate]), np.array([steps]), np.array([waits]))


def means(ttft, tpot, requests):
    return ServedMeans(np.array([ttft]), np.array([tpot]), np.array([requests]))


def test_a_group_without_runs_has_no_factor_and_the_doubt_of_unknown_groups():
    level = level_of("no-model", "h100-sxm-80gb", "vllm")
    assert (level.rows, level.name) == (0, NO_LEVEL)
    for metric in METRICS:
        spread = spread_in(shipped_spreads(), metric, "vllm", False)
        assert getattr(level, metric) == LevelOf(0.0, spread.unknown)


def test_another_engine_has_the_widest_intervals():
    other = level_of("no-model", "h100-sxm-80gb", "generic-serving")
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        for pools in (False, True):
            level = level_of("no-model", "h100-sxm-80gb", engine, disaggregated=pools)
            assert all(getattr(other, m).log_sd >= getattr(level, m).log_sd for m in METRICS)


def test_shipped_levels_say_how_many_runs_they_have():
    level = level_of(*KNOWN)
    effects = shipped_levels().groups[KNOWN]
    assert level.rows == max(effect.rows for effect in effects.values()) > 0
    assert level.name == f"{KNOWN}, from published runs"
    assert level.tpot.log_factor == effects["tpot"].log_factor
    spread = spread_in(shipped_spreads(), "tpot", KNOWN.engine, False)
    assert level.tpot.log_sd == pytest.approx(np.hypot(effects["tpot"].doubt, spread.rest))


def test_a_calibration_goes_first_and_keeps_metrics_that_it_did_not_measure():
    own = LevelTable({KNOWN: {"tpot": Effect(0.5, 0.01, 4)}}, "mine.csv")
    level, shipped = level_of(*KNOWN, own), level_of(*KNOWN)
    assert level.tpot.log_factor == 0.5
    assert level.ttft == shipped.ttft
    assert "mine.csv" in level.name
    assert level_of("x", *KNOWN[1:], own) == level_of("x", *KNOWN[1:])


def test_throughput_without_runs_of_an_engine_has_the_spread_of_its_time_per_token():
    assert spread_in(SPREADS, "throughput", "vllm", False) == SPREADS[SpreadKey("tpot", "vllm", "one")]
    assert spread_in(SPREADS, "throughput", "vllm", True) == SPREADS[SpreadKey("throughput", ANY, ANY)]


def test_more_doubt_is_a_wider_interval():
    group = Group("m", "d", "vllm")
    sds = [
        level_with(group, {"tpot": Effect(0.1, d, 1)}, SPREADS, False, "x").tpot.log_sd for d in (0.0, 0.1, 1)
    ]
    assert sds == sorted(sds)
    assert sds[0] == 0.12


@given(positive, st.floats(0, 2), st.floats(0, 2))
def test_an_interval_has_its_value_inside_and_grows_with_the_doubt(value, one, two):
    low, high = interval(value, LevelOf(0.3, min(one, two)))
    lower, higher = interval(value, LevelOf(-0.3, max(one, two)))
    assert lower <= low <= value <= high <= higher
    assert low * high == pytest.approx(value**2)


def test_an_interval_holds_80_percent_of_a_normal_error():
    errors = np.random.default_rng(0).normal(0, 0.3, 100_000)
    low, high = interval(1.0, LevelOf(0.0, 0.3))
    assert np.mean((low <= np.exp(errors)) & (np.exp(errors) <= high)) == pytest.approx(0.8, abs=0.005)


@given(positive, positive, st.integers(1, 4096), st.integers(0, 5000), factors, factors)
def test_a_closed_loop_keeps_littles_law(ttft, tpot, clients, steps, first, further):
    of = levelled(
        means(ttft, tpot if steps else np.nan, 1.0), loads(clients, steps=steps), a_level(first, further)
    )
    inside = of.requests_per_s * (of.ttft_s + (steps * of.tpot_s if steps else 0))
    assert inside[0] == pytest.approx(clients)


@given(positive, positive, positive, factors)
def test_open_arrivals_keep_their_rate(ttft, tpot, rate, factor):
    of = levelled(means(ttft, tpot, rate), loads(rate=rate), a_level(factor, factor, factor))
    assert of.requests_per_s[0] == rate
    assert of.tpot_s[0] == pytest.approx(tpot * np.exp(factor))


def test_the_largest_batch_has_the_level_of_throughput():
    of = levelled(means(1.0, 0.1, 7.0), loads(rate=np.inf), a_level(1, 1, np.log(2)))
    assert of.requests_per_s[0] == pytest.approx(14)


def test_a_wait_for_room_grows_with_the_time_per_token():
    plain = means(30.0, 0.1, 64 / (30 + 9.9))
    of = levelled(plain, loads(64, waits=True), a_level(ttft=5, tpot=np.log(1.5)))
    assert of.ttft_s[0] == pytest.approx(45)
    assert of.requests_per_s[0] == pytest.approx(plain.requests_per_s[0] / 1.5)


def test_no_level_changes_nothing():
    plain = means(2.0, 0.1, 64 / (2 + 9.9))
    of = levelled(plain, loads(64), a_level())
    assert [value[0] for value in of] == pytest.approx([value[0] for value in plain])


def test_a_metric_without_runs_has_the_inverse_factor_of_another():
    group = Group("m", "d", "vllm")
    slow = level_with(group, {"throughput": Effect(-0.4, 0.1, 5)}, SPREADS, False, "x")
    assert (slow.ttft.log_factor, slow.tpot.log_factor) == (0.4, 0.4)
    assert slow.tpot.log_sd == 0.25
    of = levelled(means(2.0, 0.1, 64 / (2 + 9.9)), loads(64), slow)
    assert of.requests_per_s[0] == pytest.approx(64 / (2 + 9.9) * np.exp(-0.4))
    timed = level_with(group, {"tpot": Effect(0.3, 0.1, 5)}, SPREADS, False, "x")
    assert (timed.throughput.log_factor, timed.ttft.log_factor) == (-0.3, 0.0)
