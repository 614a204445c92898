"""What the page of schedules under benchmarks/ computes by itself, in small cases."""

from itertools import product
from pathlib import Path

import pytest

from meshwright.schedules.action import parse_actions
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import Knobs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def test_no_1f1b_is_below_its_bound_and_without_messages_it_is_the_bound():
    from schedule_page.play import play
    from schedule_page.published import goldens

    for golden in goldens():
        found = play("1f1b", golden.pipe).figures.makespan
        assert found >= golden.bound
        assert golden.pipe.times.message or found == golden.bound


def test_a_golden_makespan_is_met_beaten_or_missed():
    from schedule_page.published import verdict

    assert verdict(0.1 + 0.2, 0.3) == "met"
    assert verdict(99.0, 100.0) == "beaten by 1"
    assert verdict(100.5, 100.0) == "**missed** by 0.5"


def test_figures_come_out_in_the_unit_of_the_times():
    from schedule_page.play import Pipe, play

    from meshwright.verbs.schedule.pass_times import RankTimes

    shown = play("1f1b", Pipe(ranks=4, micro_batches=8, times=RankTimes(0.1, 0.2, 0.3)))
    assert shown.figures.makespan == 6.6
    assert shown.bubble == pytest.approx(3 * 0.6)
    assert shown.bubble_part == pytest.approx(3 / 11)
    assert shown.micro_batches_held == 4


def test_a_stage_is_gathered_once_for_passes_in_a_row():
    from schedule_page.play import gathers

    lists = [parse_actions("0F0 0F1 2F0 2F1 2I1 0F2 2I0 2W0 2W1 0I0 0I1"), parse_actions("1F0 1B0")]
    assert gathers(lists) == (3 + 2) + (1 + 1)


@pytest.mark.parametrize(("unit", "chunks"), list(product((4, 5, 12), (2, 3))))
def test_every_stage_is_gathered_twice_for_each_unit(unit, chunks):
    from schedule_page.play import gathers

    units = -(-12 // unit)
    for name in ("zeropp", "looped-bfs"):
        lists = SCHEDULES[name].lists(4, 12, chunks, knobs=Knobs(unit=unit))
        assert gathers(lists) == 2 * units * 4 * chunks


def test_equal_predictions_are_in_no_order_and_close_measurements_are_not_counted():
    from schedule_page.order import order_of, summary

    first, second = order_of([1.0, 1.04, 2.0], [3.0, 2.0, 4.0]), order_of([1.0, 2.0], [1.0, 1.0])
    assert (first.right, first.counted) == (2, 2)
    assert first.regret == pytest.approx(0.04)
    assert (second.right, second.counted, second.spearman) == (0, 1, None)
    assert summary([first, second]) == ["median 0.50", "2 of 3", "mean 2.0%, largest 4.0%"]


def test_a_share_of_rounded_peaks_is_an_interval_that_holds_the_true_one():
    from schedule_page.zero_bubble_memory import share_interval

    least, most = share_interval(40, 30, 59, 0.5)
    assert least < 10 / 29 < most
    assert (least, most) == pytest.approx((9 / 28, 11 / 30), abs=0.03)
    assert share_interval(40, 30, 60, 0.0) == pytest.approx((1 / 3, 1 / 3))


@pytest.mark.slow
def test_lists_with_measured_passes_put_places_of_the_vocabulary_in_the_measured_order():
    from schedule_page.vocabulary_passes import iterations

    section = iterations()
    assert [target.met for target in section.targets] == [True, True]
    assert "40 of 40" in section.text


def test_targets_stand_in_front_and_missed_ones_stand_out():
    from schedule_page.section import Section, Target, page_of

    text = page_of([Section("One", "what it says", (Target("x", "1 s", "2 s", False),)), Section("Two", "")])
    assert text.index("## Targets") < text.index("**no**") < text.index("## One") < text.index("## Two")
