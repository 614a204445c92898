"""A change that is said to change the answer does, and one that is 1 % smaller does not."""

from math import inf

import pytest
from explained_cases import best, every_case, explained_best, explained_plain, explained_too_large

from meshwright.explanation.best_alternative import BestPlanTest, BestPlanUnderRate, is_best
from meshwright.explanation.cluster_resources import MEMORY, rates
from meshwright.explanation.explain_plan import searched
from meshwright.explanation.memory_tipping_points import least_capacity
from meshwright.explanation.plan_difference import ExplainedPlan
from meshwright.explanation.sensitivity import seconds_under
from meshwright.explanation.tipping_points import smallest
from meshwright.explanation.workload_tipping_points import FACTORS, changed_workloads

WORK = ("global_batch", "seq_len")


@pytest.fixture(scope="module")
def contest():
    """The best plan against all that a search finds, which is what turns are about."""
    subject = ExplainedPlan.of(best())
    return BestPlanTest.of(subject, searched(subject.setting), explained_best().choices)


def _best_under(contest, setting):
    """Whether the subject is the best, with every rival priced."""
    own = seconds_under(contest.subject, setting)
    return is_best(own, float(contest.rivals.seconds(setting).min(initial=inf)))


def test_the_best_plan_of_a_search_is_the_best(contest):
    assert contest.holds
    assert explained_best().holds
    assert not explained_plain().holds
    assert not explained_too_large().holds


def test_a_rate_turns_the_answer_there_and_not_one_percent_before(contest):
    turns = [one for one in explained_best().turns if one.resource.name not in (MEMORY, *WORK)]
    assert turns
    for one in turns:
        new = one.bracket.new
        assert not _best_under(contest, one.resource.scaled(new))
        assert _best_under(contest, one.resource.scaled(1 + 0.99 * (new - 1)))


@pytest.mark.slow
def test_a_race_says_what_pricing_every_rival_says(contest):
    for resource in rates(contest.subject.setting):
        race = BestPlanUnderRate(contest, resource)
        for factor in (0.25, 0.5, 0.9, 1.1, 2.0):
            if factor <= resource.most:
                setting = resource.scaled(factor)
                assert race.holds(factor) == _best_under(contest, setting)
                found = race.round(factor)
                least = float(contest.rivals.seconds(setting).min())
                assert not (least < found.own_s and found.best_s != pytest.approx(least))


@pytest.mark.slow
def test_the_plan_that_takes_over_is_the_quickest_there(contest):
    turns = [one for one in explained_best().turns if one.resource.name not in (MEMORY, *WORK)]
    for one in turns:
        least = float(contest.rivals.seconds(one.resource.scaled(one.bracket.new)).min())
        assert one.after.best_s == pytest.approx(least)
        assert one.to_json()["best_plan"] == one.after.best.to_data()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("explained", [explained_best, explained_plain, explained_too_large])
def test_memory_turns_the_answer_exactly(explained):
    own = explained().subject.forecast
    turns = [one for one in explained().turns if one.resource.name == MEMORY]
    assert turns
    for one in turns:
        answers = [_holds_with(one.resource.scaled(factor), own) for factor in one.bracket]
        assert answers[0] == explained().holds
        assert answers[1] != explained().holds or own.total_bytes > own.usable_bytes


def _holds_with(setting, own):
    """Whether a plan fits into a device's memory and no plan that fits is quicker."""
    capacity = setting.cluster.pool.device.memory_bytes
    if least_capacity(own.total_bytes, own.cluster) > capacity:
        return False
    found = searched(setting)
    return is_best(own.step_s, float(found.step_s[found.ranking].min(initial=inf)))


@pytest.mark.slow
def test_least_memory_is_the_least():
    for explained in every_case():
        total = explained.subject.forecast.total_bytes
        least = least_capacity(total, explained.subject.setting.cluster)
        usable = explained.subject.forecast.usable_bytes / explained.subject.forecast.capacity_bytes
        assert usable * least >= total > usable * (least - 1)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("explained", [explained_best, explained_plain, explained_too_large])
def test_batch_and_length_turn_the_answer_at_the_first_declared_factor_that_does(explained):
    for one in (one for one in explained().turns if one.resource.name in WORK):
        tries = {t.factor: t for t in changed_workloads(explained().subject, one.resource)}
        way = [f for f in FACTORS if (f < 1) == (one.bracket.new < 1) and f in tries]
        for factor in way[: way.index(one.bracket.new) + 1]:
            own_s = tries[factor].own_s
            found = searched(one.resource.scaled(factor))
            least = float(found.step_s[found.ranking].min(initial=inf))
            holds = own_s < inf and is_best(own_s, least)
            assert (holds == explained().holds) == (factor != one.bracket.new)


def test_the_smallest_change_is_told():
    for explained in every_case():
        least = smallest(explained.turns)
        assert all(one.size >= least.size for one in explained.turns)
        assert least.text in explained.summary[-1]
    assert smallest(()) is None


def test_words_name_values_before_and_after_and_who_takes_over():
    for one in explained_best().turns:
        assert f"({one.resource.at(1)} → {one.resource.at(one.bracket.new)})" in one.text
        assert "becomes the best" in one.text
        assert "per step" in one.text
