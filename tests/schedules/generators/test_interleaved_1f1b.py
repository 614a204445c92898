"""Interleaved 1F1B with units of N micro-batches, as Megatron-Core orders and allows them."""

from fractions import Fraction

import pytest

from meshwright.schedules.activation_memory import peaks
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import Knobs
from meshwright.schedules.timeline import run

KIND = SCHEDULES["interleaved-1f1b"]
SHAPES = [
    (p, m, v, unit)
    for p in (2, 3, 4)
    for m in (6, 9, 12, 16)
    for v in (2, 3)
    for unit in range(p, m + 1)
    if KIND.fault(p, m, Knobs(unit=unit)) is None
]


def passes(actions, kind):
    return [(a.stage, a.micro_batch) for a in actions if a.kind == kind]


def test_the_order_of_megatron_core_for_two_ranks_five_micro_batches_and_units_of_three():
    """The example in the docstring of ``get_schedule_table`` (``megatron/core/pipeline_parallel/schedules.py``)."""
    micro_batches, chunks = (0, 1, 2, 0, 1, 2, 3, 4, 3, 4), (0, 0, 0, 1, 1, 1, 0, 0, 1, 1)
    lists = KIND.lists(2, 5, 2, knobs=Knobs(unit=3))
    for rank, actions in enumerate(lists):
        table = list(zip(chunks, micro_batches, strict=True))
        assert passes(actions, "F") == [(2 * chunk + rank, m) for chunk, m in table]
        assert passes(actions, "B") == [(2 * (1 - chunk) + rank, m) for chunk, m in table]


@pytest.mark.parametrize(
    ("p", "m", "v"), [(p, n * p, v) for p in (2, 3, 4) for n in (1, 2, 4) for v in (2, 3)]
)
def test_without_a_word_a_unit_is_the_ranks(p, m, v):
    assert KIND.lists(p, m, v) == KIND.lists(p, m, v, knobs=Knobs(unit=p))


@pytest.mark.parametrize(("p", "m", "v", "unit"), SHAPES)
def test_warm_up_memory_and_bubble(p, m, v, unit):
    """2(P−1−r) + (V−1)N forward passes, one more in flight; the bubble is (P−1)/(V·M) whatever the unit is."""
    lists = KIND.lists(p, m, v, knobs=Knobs(unit=unit))
    warm_up = [min(m * v, 2 * (p - 1 - rank) + (v - 1) * unit) for rank in range(p)]
    first = [next(i for i, a in enumerate(actions) if a.kind == "B") for actions in lists]
    assert first == [min(w + 1, m * v) for w in warm_up]
    assert peaks(lists, StageChains(p * v)) == pytest.approx([2 * count / v for count in first])
    makespan = run(lists, lambda action: Fraction(1 if action.kind == "F" else 2, v)).makespan
    assert makespan / (3 * m) - 1 == Fraction(p - 1, v * m)


def test_a_larger_unit_hides_messages():
    lengths = [
        run(KIND.lists(4, 16, 2, knobs=Knobs(unit=unit)), lambda a: 1 if a.kind == "F" else 2, 0.2).makespan
        for unit in (4, 8)
    ]
    assert lengths[1] < lengths[0]


@pytest.mark.parametrize(
    ("m", "unit", "rule"),
    [
        (8, 3, "pp = 4 ≤ unit = 3"),
        (8, 9, "unit = 9 ≤ micro-batches = 8"),
        (9, 8, "9 % 8 = 1 must be 0, or pp = 4 at least"),
        (6, None, "6 % 4 = 2 must be 0"),
    ],
)
def test_units_that_megatron_core_refuses_are_refused(m, unit, rule):
    assert rule in KIND.fault(4, m, Knobs(unit=unit))


@pytest.mark.parametrize(("m", "unit"), [(8, 4), (12, 8), (6, 6), (13, 8), (8, None)])
def test_what_is_left_behind_full_units_is_nothing_or_the_ranks_at_least(m, unit):
    assert KIND.fault(4, m, Knobs(unit=unit)) is None
