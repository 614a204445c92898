"""Plans that are dear to evaluate: the best are those of all, and no more is evaluated than may be among them."""

from dataclasses import dataclass

import numpy as np
import pytest
from small_questions import asked

from meshwright.schedules.choice import ScheduleChoice
from meshwright.search.algorithms import expensive_best_first
from meshwright.search.algorithms.exhaustive import search_all
from meshwright.search.algorithms.expensive_best_first import add_expensive_plans
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.search.space.plan_space import Space
from meshwright.search.space.searched_schedules import all_schedules

BATCH = 24
QUESTION = asked("dense", 12, "generic", layers=12, seq_len=96, batch=BATCH)
SPACE = enumerate_space(QUESTION.setting, {}, all_schedules(QUESTION.setting.stack, (2, 3, 4, 6, 12)))
CHEAP = SPACE.plans.schedule < 3
DEAR = SPACE.plans.take(~CHEAP)


@dataclass(frozen=True)
class Scores:
    step_s: np.ndarray
    total_bytes: np.ndarray
    fits: np.ndarray


@dataclass(frozen=True)
class Floors:
    step_s: np.ndarray
    total_bytes: np.ndarray
    limit_bytes: np.ndarray


class World:
    """Made-up times, further apart than a tie, and memory; ``slack`` of a bound, and what was evaluated."""

    def __init__(self, seed, slack):
        self.seed, self.slack, self.evaluated = seed, slack, 0

    def times(self, plans):
        columns = [getattr(plans, name) for name in ("pp", "tp", "cp", "micro_batch", "virtual_stages")]
        mixed = sum((17 + i) * column for i, column in enumerate(columns)) * (3 + self.seed)
        own = (plans.schedule * 7919 + mixed * 104729 + plans.sharding * 31 + plans.recompute * 11) % 1009
        return 10 + mixed % 13 + own // 101 / 10

    def limits(self, plans):
        return np.array([c.memory_limit or c.kind.default_memory_limit or 0.0 for c in plans.schedules])[
            plans.schedule
        ]

    def memory(self, plans):
        return 10.0 + 5 * self.limits(plans) + (plans.tp * 7 + plans.pp * 5) % 11

    def evaluate(self, plans):
        self.evaluated += len(plans)
        memory = self.memory(plans)
        return Scores(self.times(plans), memory, memory <= 22)

    def floor(self, plans, enough):
        least = self.memory(plans) - 5 * self.limits(plans)
        return Floors(np.where(least > 22, np.inf, self.times(plans) - self.slack), least, self.memory(plans))


class Calls(World):
    """Counts how often plans are evaluated."""

    calls = 0

    def evaluate(self, plans):
        self.calls += 1
        return super().evaluate(plans)


def rows_of(plans):
    return np.stack([plans.columns[name] for name in sorted(plans.columns)], 1).tolist()


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(expensive_best_first, "MOST_PASSES", 10**12)


def everything(plans):
    return np.ones(len(plans), dtype=bool)


def widened(world, top=5):
    found = search_all(Space.of(SPACE.plans.take(CHEAP)), world.evaluate, everything)
    world.evaluated = 0
    return add_expensive_plans(found, DEAR, world.floor, world.evaluate, 22, top, BATCH)


def without_plans(world):
    nothing = DEAR.take(np.zeros(0, dtype=np.int64))
    return search_all(Space.of(nothing), world.evaluate, everything)


def times_of_top(found, top):
    return [found.step_s[row] for row in found.top(top)]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slack", [0.0, 0.3, 3.0, 100.0])
@pytest.mark.parametrize("top", [1, 5])
def test_the_best_are_the_best_of_all(seed, slack, top):
    world = World(seed, slack)
    whole, found = search_all(SPACE, world.evaluate, everything), widened(world, top)
    assert times_of_top(found, top) == times_of_top(whole, top)
    assert found.unplayed == 0
    spared = len(SPACE.plans) - len(found.plans)
    assert found.slower <= spared
    assert world.evaluated < len(DEAR) / 4 or slack > 1
    assert world.evaluated > len(DEAR) / 4 or slack < 100


@pytest.mark.parametrize("slack", [0.3, 3.0])
def test_plans_evaluated_ahead_of_their_turn_change_no_result(slack, monkeypatch):
    ahead, calls = widened(counted := Calls(4, slack)), []
    calls.append(counted.calls)
    monkeypatch.setattr(expensive_best_first, "AHEAD", 0.0)
    in_turn = widened(counted := Calls(4, slack))
    calls.append(counted.calls)
    assert rows_of(ahead.plans) == rows_of(in_turn.plans)
    assert ahead.step_s.tolist() == in_turn.step_s.tolist()
    assert (ahead.slower, ahead.overfull, ahead.unplayed) == (
        in_turn.slower,
        in_turn.overfull,
        in_turn.unplayed,
    )
    assert 2 * calls[0] < calls[1]


def test_what_was_left_has_a_bound_above_the_best():
    found = widened(World(1, 0.3), top=1)
    assert found.slower > 0
    assert min(found.floors.values()) >= found.step_s[found.ranking[0]]
    assert set(found.floors) <= set(np.unique(DEAR.schedule).tolist())


def test_a_higher_limit_is_not_tried_where_a_lower_one_does_not_fit():
    """With bounds that say nothing each plan comes with its lowest limit first."""
    world = World(2, 0.0)
    limits = [choice == ScheduleChoice("zero-bubble", choice.memory_limit) for choice in DEAR.schedules]
    zero_bubble = np.array(limits)[DEAR.schedule]
    dear = DEAR.take(zero_bubble)
    none = without_plans(world)

    def nothing(plans, enough):
        return Floors(*(np.zeros(len(plans)),) * 3)

    found = add_expensive_plans(none, dear, nothing, world.evaluate, 22, 10**6, BATCH)
    columns = [name for name in expensive_best_first.COLUMNS if name != "schedule"]
    plain = np.stack([getattr(found.plans, name) for name in columns], 1)[~found.fits]
    assert len(np.unique(plain, axis=0)) == len(plain) > 0
    assert (world.memory(dear) > 22).sum() > len(plain)
    assert found.fits.sum() == (world.memory(dear) <= 22).sum()
    assert found.too_large + found.fits.sum() == len(dear)


def test_lists_that_would_take_long_are_counted_and_not_played(monkeypatch):
    monkeypatch.setattr(expensive_best_first, "MOST_PASSES", 0)
    world = World(0, 0.3)
    found = widened(world)
    assert (world.evaluated, len(found.plans)) == (0, int(CHEAP.sum()))
    assert found.unplayed > 0
    assert found.slower + found.unplayed + found.too_large >= len(DEAR)


def test_an_interrupt_ends_with_the_best_that_was_found():
    world, calls = World(3, slack=2.0), []

    def evaluate(plans):
        calls.append(len(plans))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return world.evaluate(plans)

    first = search_all(Space.of(SPACE.plans.take(CHEAP)), world.evaluate, lambda plans: plans.pp > 0)
    whole = add_expensive_plans(first, DEAR, world.floor, world.evaluate, 22, 5, BATCH)
    part = add_expensive_plans(first, DEAR, world.floor, evaluate, 22, 5, BATCH)
    assert (whole.interrupted, part.interrupted) == (False, True)
    assert len(first.plans) < len(part.plans) < len(whole.plans)
    assert part.unplayed >= len(whole.plans) - len(part.plans)
    assert part.slower + part.unplayed + part.too_large + len(part.ranking) == len(SPACE.plans)


class Tight(World):
    """Quick plans do not fit, as only playing shows; those with more tensor parallelism are lean and slow."""

    def times(self, plans):
        return 10.0 + plans.tp + super().times(plans) / 1000

    def memory(self, plans):
        return 30.0 - 2 * plans.tp + super().limits(plans)

    def floor(self, plans, enough):
        return Floors(self.times(plans), self.memory(plans) - 3, self.memory(plans) - 3)


def passes_of(plans):
    return expensive_best_first._Work(plans, BATCH).passes


def test_the_leanest_come_first_while_nothing_fits(monkeypatch):
    """Work for a few lists: in the order of times none of them would fit."""
    world = Tight(0, 0.0)
    monkeypatch.setattr(expensive_best_first, "MOST_PASSES", 8 * int(passes_of(DEAR).max()))
    found = add_expensive_plans(without_plans(world), DEAR, world.floor, world.evaluate, 22, 1, BATCH)
    assert found.fits.any()
    assert found.unplayed > 0
    quickest = np.argsort(world.times(DEAR), kind="stable")[:100]
    assert (world.memory(DEAR.take(quickest)) > 22).all()


def test_plans_that_would_not_fit_at_their_limit_come_last(monkeypatch):
    """With work for a few lists of many those that are played fit, as they were estimated to."""
    world = World(0, 0.3)
    monkeypatch.setattr(expensive_best_first, "MOST_PASSES", 3 * int(passes_of(DEAR).max()))
    found = add_expensive_plans(without_plans(world), DEAR, world.floor, world.evaluate, 22, 1, BATCH)
    assert found.fits[1:].any()
    likely = world.memory(found.plans) <= 22
    assert likely[1:].all()
