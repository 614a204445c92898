"""The page of emulation claims what its rows show. `make proof` emulates them anew and fails on a breach."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import emulation  # noqa: E402
from emulated_rounds import closed_form_s  # noqa: E402

from meshwright.schedules.generators import SCHEDULES  # noqa: E402
from meshwright.schedules.vocabulary import FORMS  # noqa: E402
from meshwright.verbs.predict.predict_plan import estimated  # noqa: E402

WHOLE = (*emulation.CASES, *emulation.RANGED, *emulation.EVERY)
SYNCHRONISED = emulation.ROUNDS


def test_the_page_has_every_schedule_and_only_good_news_that_is_true():
    assert {case.schedule for case in emulation.EVERY} == set(SCHEDULES)
    assert {case.vocabulary for case in emulation.EVERY} == {None, *FORMS}
    assert {case.chunks for case in emulation.EVERY if case.solved} == {1, 2}
    assert all((case.layout["pp"], case.batch) == (4, 12) for case in emulation.EVERY)
    assert len({emulation.key(case) for case in WHOLE}) == len(WHOLE) >= 40
    assert len(emulation.RANGED) >= 10
    used = {words.split()[0] for case in emulation.RANGED for words in case.ranges.values()}
    assert used == set(emulation.LAYOUTS)
    known = {emulation.key(case) for case in (*WHOLE, *SYNCHRONISED, *emulation.FAULTY)}
    assert known == emulation.known().keys(), "run benchmarks/emulation.py --write"
    rows = [emulation.known()[emulation.key(case)] for case in WHOLE]
    assert emulation.breaches(emulation.known()) == []
    page = (BENCHMARKS / "emulation.md").read_text(encoding="utf-8")
    assert all(emulation.plan_line(case, row) in page for case, row in zip(WHOLE, rows, strict=True))
    rounds = [(case, emulation.known()[emulation.key(case)]) for case in SYNCHRONISED]
    assert all(emulation.round_line(case, row) in page for case, row in rounds)
    assert all(row["processes"] == 2 * case.layout.get("pp", 1) for case, row in rounds)
    assert all(row["before"] == (row["steps"] if _delayed(case) else 0) for case, row in rounds)


def _delayed(case):
    return any("delay" in entry for entry in case.synchronise)


@pytest.mark.parametrize("case", SYNCHRONISED, ids=lambda case: case.name)
def test_closed_form_and_simulated_round_are_those_of_today(case):
    row, plan = emulation.known()[emulation.key(case)], emulation.resolved(case)
    predicted = estimated(plan)
    assert sum(predicted.parts.values()) == pytest.approx(row["simulated_s"], rel=1e-6)
    program, _ = emulation.lower_and_simulate(plan.long, plan.setting)
    assert closed_form_s(plan, program) == pytest.approx(row["closed_form_s"], rel=1e-6)


@pytest.mark.parametrize(
    "changed", [{"emulated_s": 1.031}, {"emulated_s": 0.969}, {"closed_form_s": 1.031}], ids=str
)
def test_a_round_that_is_not_as_simulated_is_a_breach(changed):
    name = emulation.key(SYNCHRONISED[0])
    row = emulation.known()[name]
    wrong = row | {key: ratio * row["simulated_s"] for key, ratio in changed.items()}
    assert emulation.breaches(emulation.known() | {name: wrong}) == [name]


@pytest.mark.parametrize(
    ("ratio", "changed"),
    [(1.031, {}), (0.999, {}), (1.0, {"peaks_equal": False}), (1.0, {"stuck": "rank 1"})],
    ids=["late", "early", "peaks", "stuck"],
)
def test_a_plan_that_is_not_as_simulated_is_a_breach(ratio, changed):
    name = emulation.key(WHOLE[0])
    row = emulation.known()[name]
    wrong = row | {"emulated_s": row["simulated_s"] * ratio} | changed
    assert emulation.breaches(emulation.known() | {name: wrong}) == [name]


def test_a_blocking_send_that_does_not_show_is_a_breach():
    blocked = [case for case in emulation.FAULTY if case.fault == emulation.BLOCKED]
    known = {emulation.key(case): emulation.known()[emulation.key(case)] for case in emulation.FAULTY}
    hidden = {
        emulation.key(case): known[emulation.key(case)] | {"emulated_s": 1.0, "simulated_s": 1.0}
        for case in blocked
    }
    found = emulation.breaches(emulation.known() | hidden)
    assert {case.schedule for case in blocked if emulation.key(case) in found} == {"gpipe", "zb-h1", "v-half"}
