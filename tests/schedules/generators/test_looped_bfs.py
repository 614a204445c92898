"""Breadth-first order, its bubble and its memory (Lamy-Poirier, arXiv 2211.05953)."""

from fractions import Fraction
from itertools import groupby

import pytest

from meshwright.schedules.action import format_actions
from meshwright.schedules.activation_memory import peaks
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import Knobs
from meshwright.schedules.timeline import run

KIND = SCHEDULES["looped-bfs"]
SHAPES = [(p, m, v) for p in (2, 3, 4, 8) for m in (p, 2 * p, 3 * p + 1) for v in (2, 3)]


def makespan(lists, chunks):
    return run(lists, lambda action: Fraction(1 if action.kind == "F" else 2, chunks)).makespan


def test_a_small_case():
    assert [format_actions(actions) for actions in KIND.lists(2, 2, 2)] == [
        "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1",
        "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1",
    ]


def test_units_go_one_behind_the_other():
    lists = KIND.lists(2, 5, 2, knobs=Knobs(unit=2))
    runs = [(key, len(list(group))) for key, group in groupby(lists[0], lambda a: (a.kind, a.stage))]
    one_unit = [("F", 0), ("F", 2), ("B", 2), ("B", 0)]
    assert runs == [(key, size) for size in (2, 2, 1) for key in one_unit]


@pytest.mark.parametrize(("p", "m", "v"), SHAPES)
def test_the_bubble_is_that_of_interleaving_once_for_each_unit(p, m, v):
    """(P−1)·(F+B)/V; with all micro-batches at once (P−1)/(V·M) of the ideal time (section 4 of the paper)."""
    assert makespan(KIND.lists(p, m, v), v) / (3 * m) - 1 == Fraction(p - 1, v * m)
    together = KIND.lists(p, 3 * m, v, knobs=Knobs(unit=m))
    assert makespan(together, v) - 3 * 3 * m == 3 * Fraction(3 * (p - 1), v)


@pytest.mark.parametrize(("p", "m", "v"), SHAPES)
def test_a_unit_is_in_flight(p, m, v):
    ways = StageChains(p * v)
    assert peaks(KIND.lists(p, m, v), ways) == (2 * m,) * p
    assert peaks(KIND.lists(p, 2 * m, v, knobs=Knobs(unit=m)), ways) == (2 * m,) * p
