"""Due steps by periods, offsets, delays and the quadratic rule."""

from math import cos, pi

import pytest

from meshwright.plans.synchronisation.periods import (
    DueExchange,
    LearningRates,
    Periods,
    in_order,
    quadratic_rounds,
    steps_per_round,
)
from meshwright.plans.synchronisation.synchronisation import Synchronisation

QSR = {"qsr": {"base": 4, "alpha": 0.0175}}


def entry(**keys):
    return Synchronisation.model_validate({"state": "parameter", "over": "dp_replicate", **keys})


def vit_b(step, peak=0.008, warm_up=10_000, steps=93_600):
    """Cosine to 0 behind a linear warm-up; the step counts from 1, as a run's does."""
    done = step - 1
    if done < warm_up:
        return peak * (done + 1) / warm_up
    return peak * (1 + cos(pi * (done - warm_up) / (steps - warm_up))) / 2


VIT_B = LearningRates(vit_b, 93_600, 10_000)


def begins(periods, fragment, steps):
    return [step for step in range(steps + 1) if periods.begins(step, fragment)]


def test_fragments_begin_at_their_offsets():
    periods = Periods(entry(every=10, fragments=4))
    assert [begins(periods, i, 25) for i in range(4)] == [[10, 20], [2, 12, 22], [5, 15, 25], [7, 17]]


def test_more_fragments_than_steps_begin_several_at_a_time():
    periods = Periods(entry(every=2, fragments=4))
    assert [begins(periods, i, 5) for i in range(4)] == [[2, 4], [2, 4], [1, 3, 5], [1, 3, 5]]


@pytest.mark.parametrize(
    "keys", [{"every": 10, "fragments": 4}, {"every": 2, "fragments": 4}, {"every": QSR}]
)
def test_the_last_begin_is_the_largest_of_them(keys):
    rates = LearningRates(lambda step: 0.008 / step, 30)
    periods = Periods(entry(**keys), rates)
    for fragment in range(periods.count):
        found = begins(periods, fragment, 30)
        for step in range(-5, 30):
            assert periods.last_begin(step, fragment) == max((t for t in found if t <= step), default=0)


def test_exchanges_end_after_their_delay():
    periods = Periods(entry(every=4, fragments=2, delay=3))
    assert list(periods.exchanges(8)) == [
        DueExchange(2, 5, 1), DueExchange(4, 7, 0), DueExchange(6, 9, 1), DueExchange(8, 11, 0)
    ]  # fmt: skip
    assert [step for step in range(12) if periods.ends(step, 0)] == [7, 11]
    assert not any(periods.ends_empty(step, 0) for step in range(12))


def test_with_the_longest_delay_the_first_boundary_ends_an_empty_exchange():
    periods = Periods(entry(every=4, fragments=2, delay=4))
    assert [[s for s in range(13) if periods.ends_empty(s, i)] for i in range(2)] == [[4], [2]]
    assert [[s for s in range(13) if periods.ends(s, i)] for i in range(2)] == [[8, 12], [6, 10]]


def test_every_step_is_due_by_default():
    assert [exchange.begin for exchange in Periods(entry()).exchanges(3)] == [1, 2, 3]


def test_quadratic_rule_of_the_paper_makes_9711_exchanges():
    exchanges = list(Periods(entry(every=QSR), VIT_B).exchanges(93_600))
    assert len(exchanges) == 9_711
    assert exchanges[-1].begin == 93_600


def test_quadratic_rule_has_its_base_in_warm_up_and_with_small_alpha():
    rounds = dict(quadratic_rounds(entry(every=QSR), VIT_B))
    assert {length for begin, length in rounds.items() if begin < 10_000} == {4}
    small = entry(every={"qsr": {"base": 4, "alpha": 1e-9}})
    assert list(Periods(small, LearningRates(vit_b, 90, 8)).exchanges(90)) == list(
        Periods(entry(every=4)).exchanges(90)
    )


def test_cap_lowers_no_base():
    rising = LearningRates(lambda step: 0.0175 / 3, 10)
    assert list(quadratic_rounds(entry(every=QSR), rising)) == [(0, 9), (9, 4)]
    assert [exchange.begin for exchange in Periods(entry(every=QSR), rising).exchanges(10)] == [9]


def test_quadratic_rule_reaches_the_end_where_the_rate_is_zero():
    assert list(quadratic_rounds(entry(every=QSR), LearningRates(lambda step: 0.0, 50))) == [(0, 50)]


def test_fragments_of_a_rule_have_offsets_within_each_round():
    rising = LearningRates(lambda step: 0.0175 / 3, 18)
    periods = Periods(entry(every=QSR, fragments=3), rising)
    assert [begins(periods, i, 18) for i in range(3)] == [[9, 18], [3, 12], [6, 15]]


def test_rule_without_rates_has_its_base():
    assert begins(Periods(entry(every=QSR)), 0, 12) == [4, 8, 12]


@pytest.mark.parametrize(("every", "steps"), [((), 1), ((4,), 4), ((4, 6), 12), ((4, QSR), None)])
def test_steps_per_round(every, steps):
    assert steps_per_round(entry(every=one) for one in every) == steps


def test_shorter_periods_act_first():
    assert in_order([entry(every=8), entry(every=2), entry(every=QSR), entry(every=2)]) == (1, 3, 2, 0)
