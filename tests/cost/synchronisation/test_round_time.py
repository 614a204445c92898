"""Rounds of steps with their exchanges: closed form against playing, queues, and the first exchanges of a run."""

import random

import pytest

from meshwright.cost.synchronisation.round_time import (
    EntryTimes,
    play_rounds,
    round_seconds,
    uniform_round_seconds,
)
from meshwright.plans.synchronisation.periods import LearningRates, Periods, steps_per_round
from meshwright.plans.synchronisation.synchronisation import Synchronisation


def times(exchange_s, number=0, codec_s=0.0, update_s=0.0, rates=None, **keys):
    said = Synchronisation.model_validate({"state": "parameter", "over": "dp_replicate", **keys})
    periods = Periods(said, rates)
    count = periods.count
    return EntryTimes(
        number,
        periods,
        (exchange_s / count,) * count,
        (codec_s / count,) * count,
        (update_s / count,) * count,
    )


def played(step_s, *entries):
    steps = steps_per_round([one.periods.entry for one in entries])
    return play_rounds(step_s, entries, steps, whole_run=False)


@pytest.mark.parametrize(("delay", "exposed"), [(0, 7.0), (3, 4.0), (7, 0.0), (10, 0.0)])
def test_a_round_waits_for_what_its_delay_does_not_hide(delay, exposed):
    found = played(1.0, times(7.0, every=10, delay=delay))
    assert found.seconds == pytest.approx(10 + exposed)
    assert found.exposed_s.get(0, 0.0) == pytest.approx(exposed)
    assert round_seconds(1.0, 10, delay, 7.0) == 10 + exposed


def test_an_exchange_longer_than_its_period_sets_the_pace():
    """Two are in flight behind a boundary, and the stream has no time left."""
    assert played(1.0, times(14.0, every=10, delay=10)).seconds == pytest.approx(14.0)
    barely = played(1.0, times(10.01, every=10, delay=10))
    assert barely.seconds == pytest.approx(10.01)
    assert barely.exposed_s[0] == pytest.approx(0.01)


def test_a_round_counts_those_before_it_until_its_time_repeats():
    """Without a wait the first one is like all others; with one, the first has nothing to wait for."""
    assert played(1.0, times(7.0, every=10, delay=10)).rounds_before == 0
    assert played(1.0, times(14.0, every=10, delay=10)).rounds_before == 1


@pytest.mark.parametrize("seed", range(200))
def test_the_closed_form_is_the_played_round(seed):
    """Equal fragments in turn: exactly, with queues too, for the stream is then the limit."""
    draw = random.Random(seed)
    count, turn = draw.choice((1, 2, 3, 5)), draw.choice((1, 2, 4, 10))
    every = count * turn
    delay, exchange_s = draw.randint(0, every), draw.uniform(0, 3) * every / 2
    codec_s, update_s = draw.uniform(0, 0.3), draw.uniform(0, 0.3)
    entry = times(exchange_s, codec_s=codec_s, update_s=update_s, every=every, fragments=count, delay=delay)
    compute_s = (codec_s + update_s) / count
    expected = uniform_round_seconds(0.5, every, count, delay, exchange_s / count, compute_s)
    assert played(0.5, entry).seconds == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(100))
def test_entries_without_delay_add_up(seed):
    """Exactly the sum over entries of their closed forms: nothing is in flight when another begins."""
    draw = random.Random(seed)
    entries = [
        times(
            draw.uniform(0, 2), number=n, codec_s=draw.uniform(0, 1), every=draw.choice((1, 2, 3, 4, 6, 12))
        )
        for n in range(draw.randint(1, 3))
    ]
    found = played(1.0, *entries)
    more = sum(
        found.steps // one.periods.entry.period * (one.exchange_s[0] + one.codec_s[0]) for one in entries
    )
    assert found.queued == 0
    assert found.seconds == pytest.approx(found.steps + more, rel=1e-12)


@pytest.mark.parametrize("seed", range(100))
def test_a_round_is_between_the_stream_alone_and_everything_in_sequence(seed):
    draw = random.Random(seed)
    entries = []
    for number in range(draw.randint(1, 3)):
        every = draw.choice((2, 3, 4, 6, 12))
        entries.append(
            times(
                draw.uniform(0, 6),
                number=number,
                update_s=draw.uniform(0, 0.2),
                every=every,
                fragments=draw.randint(1, every),
                delay=draw.randint(0, every),
            )
        )
    found = played(1.0, *entries)
    sent = sum(found.begun[one.number] * one.exchange_s[0] for one in entries)
    computed = found.steps + sum(found.update_s.values())
    assert found.seconds == pytest.approx(computed + sum(found.exposed_s.values()))
    assert max(sent, computed) <= found.seconds * (1 + 1e-9)
    assert found.seconds <= (computed + sent) * (1 + 1e-9)
    for one in entries:
        assert found.begun[one.number] == found.steps // one.periods.entry.period * one.periods.count


def test_fragments_in_flight_wait_for_each_other():
    """Each could hide behind its delay alone; together they have a step less."""
    one = times(4.0, every=10, delay=4)
    other = times(4.0, number=1, every=10, delay=4)
    assert played(1.0, one).exposed_s.get(0, 0.0) == 0
    both = played(1.0, one, other)
    assert both.queued == 1
    assert both.exposed_s[1] == pytest.approx(4.0)


def test_a_run_with_a_rule_is_played_from_its_first_step():
    """Rounds of 4 steps, then of as many as the falling rate allows."""
    rates = LearningRates(lambda step: 0.1 if step <= 8 else 0.01, 28)
    entry = times(2.0, rates=rates, every={"qsr": {"base": 4, "alpha": 0.032}})
    found = play_rounds(1.0, [entry], 28, whole_run=True)
    assert found.begun[0] == 4  # behind 4, 8, 18 and 28 steps
    assert found.seconds == pytest.approx(28 + 4 * 2.0)


def test_the_first_exchange_of_a_run_has_nothing_to_wait_for():
    rates = LearningRates(lambda step: 0.1, 8)
    rule = times(0.0, number=1, rates=rates, every={"qsr": {"base": 8, "alpha": 0.001}})
    found = play_rounds(1.0, [times(7.0, every=4, delay=4), rule], 8, whole_run=True)
    assert found.exposed_s[0] == pytest.approx(3.0)


def test_long_rounds_take_as_many_events_as_exchanges():
    """Periods without a common factor: a round of 100 million steps."""
    found = played(1.0, times(1.0, every=9999), times(1.0, number=1, every=10001))
    assert found.steps == 9999 * 10001
    assert found.begun == {0: 10001, 1: 9999}
