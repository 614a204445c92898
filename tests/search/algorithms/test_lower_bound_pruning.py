"""A search by bounds finds what a search of everything finds, as far as it is asked."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_questions import asked
from synthetic_scores import Scored

from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.short_plans import COLUMNS
from meshwright.search.algorithms import lower_bound_pruning
from meshwright.search.algorithms.exhaustive import MATTERS, search_all
from meshwright.search.algorithms.lower_bound_pruning import SearchRequest, search_bounded
from meshwright.search.algorithms.shared_evaluation import run_search
from meshwright.search.choice_reasons import explain_choices
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.search.space.variants import all_variants
from meshwright.verbs.plan.search_space import (
    has_closed_form,
    search,
    search_scope,
    without_slower_context_forms,
)

SETTING = asked("dense", 6, "meshwright", seq_len=96, batch=6).setting
SETTING = replace(SETTING, stack=replace(SETTING.stack, contexts=("ring", "ulysses")))
WHOLE = enumerate_space(SETTING, variants=all_variants(SETTING, {}))
SPACE = WHOLE.only(has_closed_form(WHOLE))
USABLE = 600.0
FORMS = ("ring", "ulysses", "ring+ulysses")


@dataclass(frozen=True)
class MadeUp:
    """Times and bytes by row, and bounds that are so many times as large; rows are told by their columns."""

    step_s: np.ndarray
    total_bytes: np.ndarray
    loose: np.ndarray

    def rows(self, plans):
        return np.array([ROWS[key] for key in rows_of(plans)], dtype=np.int64)

    def evaluate(self, plans):
        rows = self.rows(plans)
        total = self.total_bytes[rows]
        return Scored(self.step_s[rows], total, total <= USABLE)

    def bounds(self, space):
        for code, legal in enumerate(space.legal):
            some = np.flatnonzero(legal)
            every = space.every(np.full(len(some), code), some)
            rows, floor = self.rows(every.plans), np.full((2, len(legal)), np.inf)
            np.minimum.at(floor[0], some[every.of], (self.step_s * self.loose)[rows])
            np.minimum.at(floor[1], some[every.of], (self.total_bytes * self.loose)[rows])
            yield Scored(*floor, None)


def rows_of(plans):
    columns = [getattr(plans, name) for name in (*MATTERS, *KEYS)]
    return list(zip(*(column.tolist() for column in columns), strict=True))


KEYS = ("dp_replicate", "dp_shard", "cp", "micro_batch", "virtual_stages", "sharding", "schedule")
KEYS += ("sequence_parallel", "order", "gather", "offload", "context")
ROWS = {key: row for row, key in enumerate(rows_of(SPACE.plans))}


def drawn(seed, spread, fitting):
    draw = np.random.default_rng(seed)
    count = len(SPACE.plans)
    steps = np.round(1 + spread * draw.random(count), 3)
    return MadeUp(steps, draw.random(count) * USABLE / fitting, draw.choice([0.3, 0.9, 1.0], count))


def searched(space, bounds, evaluate, request, *heard):
    return run_search(search_bounded(space, bounds, USABLE, request, *heard), evaluate)


def everything(world):
    return search_all(SPACE, world.evaluate, lambda plans: np.ones(len(plans), dtype=bool))


@pytest.mark.parametrize("seed", range(6))
def test_groups_priced_ahead_of_their_turn_change_no_result(seed, monkeypatch):
    monkeypatch.setattr(lower_bound_pruning, "GROUPS_AT_ONCE", 2)
    found, asked_for = [], []
    for ahead in (4.0, 0.0):
        world, sizes = drawn(seed, 0.3, 0.9), []
        monkeypatch.setattr(lower_bound_pruning, "AHEAD", ahead)
        request = SearchRequest(3, 1.1)

        def evaluate(plans, world=world, sizes=sizes):
            sizes.append(len(plans))
            return world.evaluate(plans)

        found.append(searched(SPACE, world.bounds, evaluate, request))
        asked_for.append(len(sizes))
    ahead, in_turn = found
    assert rows_of(ahead.plans) == rows_of(in_turn.plans)
    assert ahead.step_s.tolist() == in_turn.step_s.tolist()
    assert (ahead.slower, ahead.overfull) == (in_turn.slower, in_turn.overfull)
    assert asked_for[0] < asked_for[1]


@given(st.integers(0, 10**6), st.sampled_from((0.01, 1.0, 30.0)), st.sampled_from((0.05, 0.5, 2.0)))
@settings(max_examples=24)
def test_best_plans_ties_and_reasons_are_those_of_all_plans(seed, spread, fitting):
    world = drawn(seed, spread, fitting)
    whole, found = (
        everything(world),
        searched(SPACE, world.bounds, world.evaluate, SearchRequest(3, 1.1)),
    )
    assert len(found.plans) + found.overfull + found.slower == len(SPACE.plans)
    assert len(found.ranking) + found.too_large + found.slower == len(SPACE.plans)
    first, second = found.top(3), whole.top(3)
    assert rows_of(found.plans.take(np.array(first, dtype=int))) == rows_of(
        whole.plans.take(np.array(second, dtype=int))
    )
    assert found.within(1.1) == whole.within(1.1)
    for row, other in zip(first[:1], second[:1], strict=True):
        ours, theirs = explain_choices(found, row), explain_choices(whole, other)
        assert [reason.field for reason in ours] == [reason.field for reason in theirs]
        for one, two in zip(ours, theirs, strict=True):
            assert one.text.split("does not fit")[0] == two.text.split("does not fit")[0]


@given(st.integers(0, 10**6))
@settings(max_examples=12)
def test_what_is_slower_is_tried_where_the_quicker_does_not_fit(seed):
    world, (column, legal) = drawn(seed, 1.0, 0.5), (SPACE.plans.context, SPACE.later.legal)
    both = distinct([getattr(SPACE.plans, name) for name in COLUMNS if name != "context"]).inverse
    quick = np.full(both.max() + 1, np.inf)
    np.minimum.at(quick, both[column == 0], world.step_s[column == 0])
    late = (column == 1) & np.isfinite(quick[both])
    world.step_s[late] = 1.2 * quick[both[late]]
    slower = legal & (np.arange(len(legal)) == 1)[:, None] & legal[0]
    space = replace(SPACE, later=replace(SPACE.later, slower=slower))
    found = searched(space, world.bounds, world.evaluate, SearchRequest(3, 1.1))
    best, same = (one.plans.take(np.array(one.top(3), dtype=int)) for one in (found, everything(world)))
    assert rows_of(best) == rows_of(same)
    fits = dict(zip(rows_of(found.plans), found.fits.tolist(), strict=True))
    for row in np.flatnonzero(found.plans.context == 1):
        sibling = found.plans.take(np.array([row]))
        sibling = sibling.with_columns({"context": np.zeros(1, dtype=np.int64)})
        if rows_of(sibling)[0] in ROWS:
            assert fits[rows_of(sibling)[0]] is False


def test_most_plans_are_spared_where_bounds_are_near():
    world = replace(drawn(0, 30.0, 0.5), loose=np.ones(len(SPACE.plans)))
    same = distinct([getattr(SPACE.plans, name) for name in COLUMNS if name != "context"])
    world = replace(world, total_bytes=world.total_bytes[same.first][same.inverse])
    found = searched(SPACE, world.bounds, world.evaluate, SearchRequest(1, 1.1))
    assert found.overfull == (world.total_bytes > USABLE).sum()
    assert len(found.plans) < 0.2 * len(SPACE.plans)
    assert found.least_bytes == world.total_bytes.min()


def test_a_value_with_which_nothing_fits_is_named_with_its_least_bound():
    world = drawn(0, 30.0, 2.0)
    wide = SPACE.plans.tp == SPACE.plans.tp.max()
    world.total_bytes[wide] = 2 * USABLE
    found = searched(SPACE, world.bounds, world.evaluate, SearchRequest(1, 1.1))
    text = next(reason.text for reason in explain_choices(found, found.top(1)[0]) if reason.field == "tp")
    assert f"does not fit with tp {SPACE.plans.tp.max()}" in text


def test_an_empty_space_has_an_empty_answer():
    world = drawn(0, 1.0, 1.0)
    nothing = SPACE.where(np.zeros(len(SPACE.base), dtype=bool))
    found = searched(nothing, world.bounds, world.evaluate, SearchRequest(5, 1.1))
    assert len(found.plans) == len(found.ranking) == 0


def test_pieces_make_no_difference(monkeypatch):
    world = drawn(1, 30.0, 0.5)
    whole = searched(SPACE, world.bounds, world.evaluate, SearchRequest(3, 1.1))
    monkeypatch.setattr(lower_bound_pruning, "MOST_AT_ONCE", 5)
    monkeypatch.setattr(lower_bound_pruning, "GROUPS_AT_ONCE", 1)
    pieces = searched(SPACE, world.bounds, world.evaluate, SearchRequest(3, 1.1))
    assert rows_of(whole.plans.take(np.array(whole.top(3)))) == rows_of(
        pieces.plans.take(np.array(pieces.top(3)))
    )


@pytest.mark.parametrize(
    ("model", "devices", "stack"),
    [
        ("dense", 16, "megatron-core"),
        pytest.param("latent", 8, "meshwright", marks=pytest.mark.slow),
        pytest.param("sparse", 12, "generic", marks=pytest.mark.slow),
        pytest.param("sparse", 24, "generic", marks=pytest.mark.slow),
        pytest.param("latent", 32, "meshwright", marks=pytest.mark.slow),
    ],
)
def test_questions_are_answered_as_by_all_plans(model, devices, stack):
    setting = asked(model, devices, stack, seq_len=2048, batch=96).setting
    few = tuple(name for name in setting.stack.contexts if name in FORMS)
    setting = replace(setting, stack=replace(setting.stack, contexts=few))
    scope = search_scope({}, None, 5, setting)
    space, found = search(scope, setting)
    whole = search_all(
        space, lambda plans: evaluate(plans, setting, only_fitting=True), lambda plans: plans.pp > 0
    )
    assert len(found.plans) < len(whole.plans)
    best, same = (one.plans.take(np.array(one.top(5))) for one in (found, whole))
    assert rows_of(best) == rows_of(same)
    needed = (
        whole.fits
        & ~copies_without_need(whole)
        & ~forms_without_need(whole, without_slower_context_forms(space, setting))
    )
    assert found.within(1.1) == (whole.step_s[needed] <= 1.1 * whole.step_s[needed].min()).sum()


def forms_without_need(found, left):
    """Plans with forms that another beats, or that are slower than one that fits: a search does not try them."""
    every = left.every(*np.nonzero(left.legal))
    row = {
        key: row
        for row, key in enumerate(zip(*(getattr(found.plans, c).tolist() for c in COLUMNS), strict=True))
    }
    rows = np.array(
        [row[key] for key in zip(*(getattr(every.plans, c).tolist() for c in COLUMNS), strict=True)]
    )
    lacking = np.zeros(every.of.max() + 1, dtype=bool)
    lacking[every.of[~every.slower & ~found.fits[rows]]] = True
    result = np.ones(len(found.plans), dtype=bool)
    result[rows[~every.slower | lacking[every.of]]] = False
    assert (every.slower & ~lacking[every.of]).any()
    return result


def copies_without_need(found):
    """Plans with copies on hosts that fit without them, too: they are no quicker, and a search does not try them."""
    names = [name for name in COLUMNS if name != "offload"]
    keys = distinct([getattr(found.plans, name) for name in names]).inverse
    leaves = found.plans.offload == 0
    fits_without = np.isin(keys, keys[leaves & found.fits])
    return ~leaves & fits_without


def test_an_interrupt_leaves_what_was_found_till_then(monkeypatch):
    monkeypatch.setattr(lower_bound_pruning, "MOST_AT_ONCE", 5)
    world, heard, calls = drawn(1, 30.0, 0.5), [], []

    def evaluate(plans):
        calls.append(len(plans))
        if len(calls) > len(lower_bound_pruning.LIKELY) + 1:
            raise KeyboardInterrupt
        return world.evaluate(plans)

    def told(best, left):
        heard.append((best, left))

    found = searched(SPACE, world.bounds, evaluate, SearchRequest(3, 1.1), told)
    assert found.interrupted
    assert found.unplayed > 0
    assert len(found.ranking) > 0
    assert len(found.plans) + found.overfull + found.slower + found.unplayed == len(SPACE.plans)
    assert heard[-1][0].step_s == found.step_s[found.fits].min()
    whole = searched(SPACE, world.bounds, world.evaluate, SearchRequest(3, 1.1))
    assert not whole.interrupted
    assert (whole.unplayed, whole.gap) == (0, 0.0)
    assert 0 <= found.gap < 1
    assert whole.step_s[whole.fits].min() >= (1 - found.gap) * found.step_s[found.fits].min() * (1 - 1e-6)
