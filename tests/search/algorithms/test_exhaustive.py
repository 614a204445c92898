import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_questions import asked
from synthetic_scores import Scored

from meshwright.search.algorithms import exhaustive
from meshwright.search.algorithms.exhaustive import MATTERS, TIE, rank, search_all
from meshwright.search.space.legal_plans import enumerate_space

SPACE = enumerate_space(asked("sparse", 12, "megatron-core", seq_len=96, batch=12).setting)


def scores(plans):
    step_s = 1 + (plans.tp * 7 + plans.pp * 3 + plans.micro_batch + plans.recompute) % 11
    total = 100 * (plans.tp + 2 * plans.sharding + plans.ep) % 700
    return Scored(step_s.astype(float), total.astype(float), total < 600)


def odd_tp_may_fit(plans):
    return plans.tp != 2


def ranked_one_by_one(step_s, total_bytes):
    """Runs begin at the fastest plan left; within ``TIE`` of it the smaller comes first."""
    left = sorted(range(len(step_s)), key=lambda i: step_s[i])
    result = []
    while left:
        limit = step_s[left[0]] * (1 + TIE)
        run = [i for i in left if step_s[i] <= limit]
        result += sorted(run, key=lambda i: total_bytes[i])
        left = [i for i in left if step_s[i] > limit]
    return result


@given(
    st.lists(
        st.tuples(st.sampled_from((1.0, 1.0005, 1.001, 1.0015, 1.3, 2.0)), st.integers(0, 5)), max_size=30
    )
)
@settings(deadline=None, max_examples=300)
def test_ranking_is_by_time_and_near_ties_by_memory(pairs):
    step_s = np.array([time for time, _ in pairs], dtype=float)
    total = np.array([memory for _, memory in pairs], dtype=float)
    assert rank(step_s, total).tolist() == ranked_one_by_one(step_s.tolist(), total.tolist())


def test_search_scores_what_may_fit_and_ranks_what_fits():
    found = search_all(SPACE, scores, odd_tp_may_fit)
    possible = SPACE.plans.take(SPACE.plans.tp != 2)
    wanted = scores(possible)
    assert len(found.plans) == len(possible) > 0
    assert found.step_s.tolist() == wanted.step_s.tolist()
    assert found.total_bytes.tolist() == wanted.total_bytes.tolist()
    assert found.too_large == (SPACE.plans.tp == 2).sum() + (~wanted.fits).sum()
    rows = np.flatnonzero(wanted.fits)
    order = ranked_one_by_one(wanted.step_s[rows].tolist(), wanted.total_bytes[rows].tolist())
    assert found.ranking.tolist() == rows[order].tolist()
    assert len(found.ranking) + found.too_large == len(SPACE.plans)


def test_chunks_change_nothing(monkeypatch):
    whole = search_all(SPACE, scores, odd_tp_may_fit)
    monkeypatch.setattr(exhaustive, "CHUNK", 7)
    sizes = []

    def noted(plans):
        sizes.append(len(plans))
        return scores(plans)

    pieces = search_all(SPACE, noted, odd_tp_may_fit)
    assert set(sizes[:-1]) == {7}
    assert sum(sizes) == len(pieces.plans)
    assert pieces.ranking.tolist() == whole.ranking.tolist()
    assert pieces.too_large == whole.too_large


@pytest.mark.parametrize("count", [1, 3, 10, 10**6])
def test_the_best_plans_differ_in_something_that_matters(count):
    found = search_all(SPACE, scores, odd_tp_may_fit)
    seen, wanted = set(), []
    for row in found.ranking.tolist():
        key = tuple(int(getattr(found.plans, name)[row]) for name in MATTERS)
        if key not in seen:
            seen.add(key)
            wanted.append(row)
    assert found.top(count) == wanted[:count]
    assert found.top(count)[0] == found.ranking[0]


def test_an_empty_space_and_one_where_nothing_may_fit_have_empty_answers():
    empty = enumerate_space(asked("dense", 7, "megatron-core", seq_len=96, batch=3).setting)
    found = search_all(empty, scores, odd_tp_may_fit)
    assert (len(found.plans), found.top(5), found.too_large) == (0, [], 0)
    found = search_all(SPACE, scores, lambda plans: plans.tp < 0)
    assert (len(found.plans), found.top(5), found.too_large) == (0, [], len(SPACE.plans))


def test_plans_that_do_not_fit_are_not_ranked_however_quick():
    found = search_all(
        SPACE,
        lambda plans: Scored(scores(plans).step_s, scores(plans).total_bytes, plans.pp < 0),
        odd_tp_may_fit,
    )
    assert len(found.plans) > 0
    assert len(found.ranking) == 0
    assert found.too_large == len(SPACE.plans)
