"""The fit against machines whose constants are known."""

import numpy as np
import pytest
from left_out_fits import FOLD, folds, group_of, left_out_fits, parameters_for, weighted_quantiles
from synthetic_measured_runs import PLANS, observation

from meshwright.calibration.fit import fit, fit_start
from meshwright.calibration.fitted_parameters import Parameter, Prior, priors
from meshwright.cost.constant_values import with_values
from meshwright.cost.constants import constants, kernels


def believed(name, value, width):
    """A parameter whose prior is around its present value."""
    return Parameter(name, value, Prior(value, width))


GEMM = believed("h100:gemm_efficiency", kernels("h100").gemm_efficiency, 0.3)
HBM = believed("hbm_efficiency", constants()["hbm_efficiency"], 0.5)


def sources_left_out(runs):
    """Errors of the first observation of every source, predicted without it."""
    return {left.name: left.errors[0] for left in left_out_fits(runs) if not left.name.startswith(FOLD)}


def test_hidden_constants_are_found_when_priors_leave_them_free():
    hidden = {GEMM.name: GEMM.value * 0.85, HBM.name: HBM.value * 0.75}
    free = [believed(p.name, p.value, 3.0) for p in (GEMM, HBM)]
    found = fit([observation(hidden)], free)
    assert found.values == pytest.approx(hidden, rel=0.05)
    assert found.after < found.before / 10


def test_present_constants_stay_where_nothing_contradicts_them():
    found = fit([observation({})], [GEMM, HBM])
    assert found.values == pytest.approx({GEMM.name: GEMM.value, HBM.name: HBM.value})


def test_a_narrow_prior_holds_a_constant_back():
    hidden = {GEMM.name: GEMM.value * 0.8}
    free = fit([observation(hidden)], [GEMM]).values[GEMM.name]
    held = fit([observation(hidden)], [believed(GEMM.name, GEMM.value, 0.005)]).values[GEMM.name]
    assert free < held < GEMM.value


def test_one_wild_run_does_not_decide():
    wild = observation({})
    wild.measured_s[0] *= 5
    found = fit([wild], [believed(GEMM.name, GEMM.value, 0.3)])
    assert found.values[GEMM.name] == pytest.approx(GEMM.value, rel=0.08)


@pytest.mark.slow
def test_every_source_counts_the_same_however_many_runs_it_has():
    slow = {GEMM.name: GEMM.value * 0.9}
    many = [observation(slow, source="many") for _ in range(8)]
    one = observation({GEMM.name: GEMM.value * 1.1}, source="one")
    found = fit([*many, one], [GEMM]).values[GEMM.name]
    assert found == pytest.approx(GEMM.value, rel=0.03)


@pytest.mark.slow
def test_a_fit_that_begins_with_what_is_known_there_is_the_same():
    runs = [observation({GEMM.name: GEMM.value * 0.85}), observation({HBM.name: HBM.value * 0.75})]
    known = fit_start(runs, [GEMM, HBM])
    for kept in (slice(0, 2), slice(1, 2)):
        assert fit(runs[kept], [GEMM, HBM], begun=known[kept]) == fit(runs[kept], [GEMM, HBM])


def test_values_change_only_what_they_name():
    here = observation({}).setting
    changed = with_values(here, {"a100:gemm_efficiency": 0.1, "torchtitan/host_s_per_layer": 9.0})
    assert (changed.cluster.calibration, changed.stack) == ((), here.stack)
    changed = with_values(here, {"megatron-core/host_s_per_layer": 9.0, "h100:gemm_efficiency": 0.1})
    assert changed.stack.host_s_per_layer == 9.0
    assert dict(changed.cluster.calibration) == {"gemm_efficiency": 0.1}


def test_parameters_are_those_that_the_runs_can_speak_of():
    names = {p.name for p in parameters_for([observation({})])}
    assert {"hbm_efficiency", "h100:gemm_efficiency", "megatron-core/elementwise_factor"} <= names
    assert not names & {"fp8_speed_up", "grouped_half_width", "a100:gemm_efficiency"}


def test_folds_deal_every_group_out_once_and_spread_each_source():
    runs = [
        observation(
            {}, plans=[{"layout": {"dp_shard": devices}, "sharding": "zero1"}], source=source, count=devices
        )
        for source, most in (("many", 128), ("few", 4))
        for devices in (2, 4, 8, 16, 32, 64, 128)
        if devices <= most
    ]
    dealt = folds(runs)
    assert sorted(group for fold in dealt for group in fold) == sorted(group_of(run) for run in runs)
    sizes = [sum(source == "many" for source, *_ in fold) for fold in dealt]
    assert max(sizes) - min(sizes) <= 1
    assert folds(runs[::-1]) == dealt


@pytest.mark.slow
def test_a_source_is_predicted_without_having_been_fitted():
    believed_before = {name: prior.value for name, prior in priors().items() if "/" not in name}
    slow = believed_before | {GEMM.name: 0.8 * believed_before[GEMM.name]}
    runs = [observation(slow, source="a"), observation(slow, source="b", plans=PLANS[:3])]
    errors = sources_left_out(runs)
    assert set(errors) == {"a", "b"}
    unfitted = np.abs(observation(slow).log_errors(believed_before)).mean()
    assert all(np.abs(e).mean() < unfitted / 2 for e in errors.values())


@pytest.mark.slow
def test_what_only_the_left_out_source_could_say_stays_at_its_prior():
    """The stack's present numbers were fitted to its own runs; leaving them out takes those away."""
    assert {p.prior for p in parameters_for([observation({})]) if p.name.endswith("/elementwise_factor")} == {
        priors()["*/elementwise_factor"]
    }
    runs = [
        observation({}, source="a"),
        observation({}, source="b", device="a100-sxm-80gb", stack="deepspeed"),
    ]
    before = {p.name: p.prior.value for p in parameters_for(runs)}
    errors = sources_left_out(runs)
    alone = runs[0].log_errors(before)
    assert np.abs(errors["a"] - alone).max() < 0.3


def test_every_prior_has_an_origin_and_a_constant():
    for name, prior in priors().items():
        assert prior.value > 0
        assert 0 < prior.width <= 1
        if ":" not in name and "/" not in name:
            assert name in constants()


def test_weighted_quantiles_equal_repetition():
    values, weights = np.array([3.0, 1.0, 2.0, 5.0]), np.array([2, 1, 4, 3])
    repeated = np.sort(np.repeat(values, weights))
    for share in (0.1, 0.35, 0.5, 0.9):
        wanted = repeated[int(np.ceil(share * len(repeated))) - 1]
        assert weighted_quantiles(values, weights.astype(float), [share]) == [wanted]
