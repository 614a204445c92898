"""Small entries of ``synchronise``: what periods, delays and fragments do to each other stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.plans.shrink.small_exchanges import PeriodMap, rates_of, steps_of
from meshwright.plans.synchronisation.periods import Periods, quadratic_rounds
from meshwright.plans.synchronisation.synchronisation import Synchronisation


def entry(every, delay=0, fragments=1, **keys):
    data = {"state": "parameter", "over": "dp_replicate", "every": every, "delay": delay}
    return Synchronisation.model_validate({**data, "fragments": fragments, **keys})


@st.composite
def periods(draw):
    every = draw(st.integers(1, 2000))
    return entry(every, draw(st.integers(0, every)), draw(st.integers(1, 24)))


@given(st.lists(periods(), min_size=1, max_size=5))
def test_order_and_kind_of_periods_and_delays_stay(entries):
    small_of = PeriodMap.of(entries).small
    small = [small_of(one, 4) for one in entries]
    for one, made in zip(entries, small, strict=True):
        assert (one.period == 1) == (made.period == 1)
        assert (one.delay == 0) == (made.delay == 0)
        assert (one.delay == one.period) == (made.delay == made.period)
        assert (one.fragment_rule.count == 1) == (made.fragment_rule.count == 1)
        for other, its in zip(entries, small, strict=True):
            assert (one.period < other.period) == (made.period < its.period)
            if one.period == other.period:
                assert (one.delay < other.delay) == (made.delay < its.delay)


@given(st.lists(st.sampled_from((1, 2, 4, 7, 30, 100, 500)), min_size=1, max_size=3))
def test_a_proof_has_whole_rounds_and_two_exchanges_of_each_entry(every):
    entries = [entry(period) for period in every]
    small = [PeriodMap.of(entries).small(one, 4) for one in entries]
    steps = steps_of(small)
    for one in small:
        assert steps % one.period == 0
        assert len(list(Periods(one).exchanges(steps))) >= 2
    assert steps <= 32


@pytest.mark.parametrize("alpha", [1e-9, 0.0175, 0.1])
def test_the_base_of_a_rule_shrinks_as_periods_do(alpha):
    rule, other = entry({"qsr": {"base": 4, "alpha": alpha}}), entry(8)
    shared = PeriodMap.of([rule, other])
    small = shared.small(rule, 4)
    assert (small.period, small.rule.alpha, shared.small(other, 4).period) == (2, alpha, 4)
    steps = steps_of([small])
    assert sum(length for _, length in quadratic_rounds(small, rates_of([small], steps))) == steps
    assert len(list(Periods(small, rates_of([small], steps)).exchanges(steps))) >= 2


def test_multiples_stay_multiples_and_numbers_of_codecs_shrink_on_request():
    entries = [entry(256), entry(768), entry(1536)]
    assert [PeriodMap.of(entries).small(one, 4).period for one in entries] == [2, 4, 8]
    factors = entry(100, compress={"low_rank": 16, "layers": "8..39"})
    of = PeriodMap.of([factors])
    assert of.small(factors, 4).compress.low_rank == 2
    assert of.small(factors, 4, codecs=False).compress.low_rank == 16
    assert of.small(factors, 4).compress.layers == "1..3"
