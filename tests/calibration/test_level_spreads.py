"""Spreads fitted to runs whose levels and rests were drawn with known ones."""

import numpy as np
import pytest

from meshwright.calibration.level_spreads import FEWEST_RUNS, fit_spreads
from meshwright.calibration.run_errors import RunErrors
from meshwright.cost.serving.levels import ANY, Group, Spread, SpreadKey

BETWEEN, REST = 0.3, 0.1


def drawn(groups=120, runs=12, engine="vllm", seed=0, far=0.0):
    """Errors of TPOT alone; a share ``far`` of the runs is off by a factor of e³."""
    random = np.random.default_rng(seed)
    names = [Group(f"m{g}", "d", engine) for g in range(groups) for _ in range(runs)]
    levels = np.repeat(random.normal(0, BETWEEN, groups), runs)
    errors = levels + random.normal(0, REST, groups * runs)
    errors += 3.0 * (random.random(groups * runs) < far)
    whole = np.full((len(names), 3), np.nan)
    whole[:, 1] = errors
    return RunErrors(tuple(names), np.zeros(len(names), dtype=bool), whole)


def test_normal_levels_and_rests_are_found():
    found = fit_spreads(drawn())[SpreadKey("tpot", "vllm", "one")]
    assert found.between == pytest.approx(BETWEEN, rel=0.15)
    assert found.scale == pytest.approx(REST, rel=0.1)
    assert found.rest == pytest.approx(REST * np.sqrt(12 / 11), rel=0.1)
    assert found.unknown == pytest.approx(np.hypot(BETWEEN, REST), rel=0.1)


def test_far_runs_move_the_scale_little():
    plain = fit_spreads(drawn())[SpreadKey("tpot", "vllm", "one")]
    with_far = fit_spreads(drawn(far=0.05))[SpreadKey("tpot", "vllm", "one")]
    assert with_far.scale == pytest.approx(plain.scale, rel=0.15)
    assert with_far.between == pytest.approx(plain.between, rel=0.15)


def test_few_runs_or_one_group_have_no_spreads_of_their_own():
    many, few = drawn(), drawn(groups=2, runs=FEWEST_RUNS // 4, engine="sglang", seed=1)
    one = drawn(groups=1, runs=2 * FEWEST_RUNS, engine="tensorrt-llm", seed=2)
    joined = RunErrors(
        many.groups + few.groups + one.groups,
        np.concatenate([many.disaggregated, few.disaggregated, one.disaggregated]),
        np.concatenate([many.log_errors, few.log_errors, one.log_errors]),
    )
    assert set(fit_spreads(joined)) == {SpreadKey("tpot", "vllm", "one"), SpreadKey("tpot", ANY, ANY)}


def test_any_engine_is_as_wide_as_the_widest():
    narrow = drawn()
    wide = RunErrors(
        tuple(group._replace(engine="sglang") for group in narrow.groups),
        narrow.disaggregated,
        3 * narrow.log_errors,
    )
    joined = RunErrors(
        narrow.groups + wide.groups,
        np.concatenate([narrow.disaggregated, wide.disaggregated]),
        np.concatenate([narrow.log_errors, wide.log_errors]),
    )
    found = fit_spreads(joined)
    assert found[SpreadKey("tpot", ANY, ANY)].rest == found[SpreadKey("tpot", "sglang", "one")].rest
    assert isinstance(found[SpreadKey("tpot", ANY, ANY)], Spread)
