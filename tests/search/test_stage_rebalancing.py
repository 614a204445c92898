"""New stages for what a search has found, with scores that are made up."""

import numpy as np
from small_questions import asked
from synthetic_scores import Scored

from meshwright.search.algorithms.exhaustive import search_all
from meshwright.search.choice_reasons import FIELDS
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.search.stage_rebalancing import (
    MOST_EXCESS,
    TRIED,
    Recut,
    explain_stages,
    restaged,
    worth_restaging,
)

SPACE = enumerate_space(asked("dense", 12, "megatron-core", layers=6, seq_len=96, batch=12).setting)
USABLE = 600.0


def scores(plans):
    step_s = 1.0 + (plans.tp * 7 + plans.pp * 3 + plans.micro_batch + plans.recompute) % 11
    total = 100.0 * ((plans.tp + 2 * plans.sharding + plans.pp) % 12)
    return Scored(step_s, total, total < USABLE)


def searched():
    return search_all(SPACE, scores, lambda plans: plans.pp > 0)


def test_plans_with_a_pipeline_that_are_good_or_nearly_fit_are_worth_a_try():
    found = searched()
    rows = worth_restaging(found, scores, USABLE)
    assert len(set(rows)) == len(rows) > 0
    best = float(found.step_s[found.ranking[0]])
    for row in rows:
        assert found.plans.pp[row] > 1
        if not found.fits[row]:
            assert found.total_bytes[row] <= MOST_EXCESS * USABLE
            assert found.step_s[row] < best
    piped = [int(row) for row in found.ranking[:TRIED] if found.plans.pp[row] > 1]
    assert set(piped) <= set(rows)


def test_the_best_plan_of_each_choice_is_worth_a_try():
    found = searched()
    rows = set(worth_restaging(found, scores, USABLE))
    for field in FIELDS:
        column = getattr(found.plans, field)
        for value in np.unique(column[found.ranking]):
            first = next(int(row) for row in found.ranking if column[row] == value)
            assert first in rows or found.plans.pp[first] == 1


def test_where_nothing_fits_the_quickest_that_nearly_do_are_tried():
    found = search_all(
        SPACE,
        lambda plans: Scored(scores(plans).step_s, np.full(len(plans), 700.0), plans.pp < 0),
        scores_all,
    )
    rows = worth_restaging(found, scores, USABLE)
    assert 0 < len(rows) <= TRIED
    slowest = max(found.step_s[row] for row in rows)
    others = np.setdiff1d(np.flatnonzero(found.plans.pp > 1), rows)
    assert (found.step_s[others] >= slowest).all()


def scores_all(plans):
    return plans.pp > 0


def test_by_time_quicker_stages_are_kept_and_the_ranking_follows():
    found = searched()
    worst, second = int(found.ranking[-1]), int(found.ranking[1])
    cuts = {worst: Recut((1, 2), 0.5, 500.0), second: Recut((2, 1), 1.01 * float(found.step_s[second]), 1.0)}
    after = restaged(found, [worst, second], cuts.get, "time")
    assert after.cuts == {worst: cuts[worst]}
    assert int(after.found.ranking[0]) == worst
    assert after.found.step_s[worst] == 0.5
    assert sorted(after.found.ranking.tolist()) == sorted(found.ranking.tolist())
    assert after.before is found
    assert found.step_s[worst] > 0.5


def test_by_memory_leaner_stages_are_kept_even_where_they_are_slower():
    found = searched()
    first = next(int(row) for row in found.ranking if found.total_bytes[row] > 100)
    slower = Recut((1, 2), 2 * float(found.step_s[first]), 50.0)
    assert restaged(found, [first], {first: slower}.get, "memory").cuts == {first: slower}
    assert restaged(found, [first], {first: slower}.get, "time").cuts == {}


def test_by_memory_plans_that_were_not_tried_come_last():
    found = searched()
    rows = [int(row) for row in found.ranking if found.plans.pp[row] > 1][-3:]
    after = restaged(found, rows, lambda row: None, "memory").found
    places = after.ranking.tolist()
    others = [row for row in places if found.plans.pp[row] > 1 and row not in rows]
    assert sorted(places) == sorted(found.ranking.tolist())
    assert max(map(places.index, rows)) < min(map(places.index, others))


def test_stages_that_are_as_good_and_better_in_the_other_way_are_kept_and_equal_ones_are_not():
    found = searched()
    row = next(int(row) for row in found.ranking if found.total_bytes[row] > 100)
    step_s, total = float(found.step_s[row]), float(found.total_bytes[row])
    for aim in ("time", "memory"):
        assert not restaged(found, [row], {row: Recut((1,), step_s, total)}.get, aim).cuts
    assert restaged(found, [row], {row: Recut((1,), step_s, total - 1)}.get, "time").cuts
    assert restaged(found, [row], {row: Recut((1,), 0.9 * step_s, total)}.get, "memory").cuts


def test_a_plan_that_fits_only_with_new_stages_joins_the_ranking():
    found = searched()
    lacking = int(np.flatnonzero(~found.fits)[0])
    after = restaged(found, [lacking], {lacking: Recut((3, 3), 0.25, 590.0)}.get, "time")
    assert int(after.found.ranking[0]) == lacking
    assert len(after.found.ranking) == len(found.ranking) + 1
    assert after.found.too_large == found.too_large - 1
    assert "does not fit with balanced stages" in explain_stages(after, lacking)[-1].text


def test_plans_that_get_no_stages_stay_as_they_are():
    found = searched()
    after = restaged(found, found.ranking[:5].tolist(), lambda row: None, "time")
    assert after.cuts == {}
    assert after.found.ranking.tolist() == found.ranking.tolist()


def test_the_reason_names_the_stages_and_what_equal_ones_cost():
    found = searched()
    row = int(found.ranking[0])
    own = float(found.step_s[row])
    cut = Recut((3, 2), own / 1.25, 9.0)
    (reason,) = explain_stages(restaged(found, [row], {row: cut}.get, "time"), row)
    assert (reason.field, reason.value) == ("stages", "embed + 3 | 2 + head")
    assert "25.0% slower" in reason.text


def test_the_reason_names_what_stages_recompute_and_what_it_would_cost_if_all_did_alike():
    found = searched()
    row, alike = int(found.ranking[0]), {"none": None, "full": 0.6}
    cut = Recut((3, 2), 0.5, 9.0, ("full", "none"), alike)
    reason, stages = explain_stages(restaged(found, [row], {row: cut}.get, "time"), row)
    assert (reason.field, reason.value) == ("recompute by stage", "full | none")
    assert reason.text.startswith("none on all: does not fit; full on all: 600.000 ms, 20.0% slower")
    assert stages.field == "stages"


def test_where_stages_may_recompute_more_plans_are_tried_that_would_fit_if_all_did():
    def held(plans):
        total = np.where(plans.recompute == plans.values["recompute"].index("full"), 700.0, 5000.0)
        return Scored(scores(plans).step_s, total, plans.pp < 0)

    found = search_all(SPACE, held, scores_all)
    alone, together = (worth_restaging(found, held, USABLE, leanest) for leanest in (None, "full"))
    assert {found.plans.values["recompute"][found.plans.recompute[row]] for row in alone} == {"full"}
    assert {found.plans.values["recompute"][found.plans.recompute[row]] for row in together} > {"full"}
