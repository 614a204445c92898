import re
from dataclasses import dataclass

import numpy as np
import pytest
from small_questions import asked, choices_of

from meshwright.plans.choices.gather import NEVER
from meshwright.search.algorithms.exhaustive import search_all
from meshwright.search.choice_reasons import FIELDS, explain_choices
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.search.space.plan_space import Space
from meshwright.units import GIB, format_bytes, format_seconds

SPACE = enumerate_space(asked("sparse", 6, "generic", seq_len=96, batch=6).setting)
AGAINST = re.compile(r"(\w+) (\S+): (\S+ \S+), (?:(equal)|(\S+)% (slower|faster))")
TOO_LARGE = re.compile(r"does not fit with (.*) \(at least (.*)\)")


@dataclass(frozen=True)
class Scored:
    """Random scores, in seconds and bytes."""

    step_s: np.ndarray
    total_bytes: np.ndarray
    fits: np.ndarray


def found_with(seed, share_that_fits):
    random = np.random.default_rng(seed)

    def scores(plans):
        total = random.uniform(40, 120, len(plans)) * GIB
        total[plans.tp == 3] += 200 * GIB
        fits = total < np.quantile(total, share_that_fits)
        return Scored(random.uniform(1, 2, len(plans)), total, fits)

    return search_all(SPACE, scores, lambda plans: np.ones(len(plans), dtype=bool))


def best_by_value(found, field, own):
    """For each other value: (seconds of the best that fits or None, least bytes), plan by plan."""
    result = {}
    for row, choice in enumerate(choices_of(Space.of(found.plans))):
        value = str(choice[field])
        if value in (own, NEVER):  # nothing to gather: a matter of sharding
            continue
        seconds, least = result.get(value, (None, float("inf")))
        if found.fits[row] and (seconds is None or found.step_s[row] < seconds):
            seconds = found.step_s[row]
        result[value] = seconds, min(least, found.total_bytes[row])
    return result


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("share_that_fits", [1.0, 0.3, 0.02])
@pytest.mark.parametrize("place", [0, 3])
def test_every_number_of_a_reason_is_what_looking_at_all_plans_finds(share_that_fits, place):
    found = found_with(5, share_that_fits)
    row = int(found.ranking[place])
    own = choices_of(Space.of(found.plans.take(np.array([row]))))[0]
    reasons = explain_choices(found, row)
    asked = [f for f in FIELDS if own[f] != NEVER and (f != "sequence_parallel" or own["tp"] > 1)]
    assert [reason.field for reason in reasons] == [f for f in asked if best_by_value(found, f, str(own[f]))]
    for reason in reasons:
        assert reason.value == str(own[reason.field])
        assert reason.to_json() == {"field": reason.field, "value": reason.value, "reason": reason.text}
        _compare(reason, best_by_value(found, reason.field, reason.value), float(found.step_s[row]))


def _compare(reason, rivals, own_s):
    fitting = sorted((s, value) for value, (s, _) in rivals.items() if s is not None)[:3]
    too_large = sorted((least, value) for value, (s, least) in rivals.items() if s is None)
    parts = reason.text.split("; ")
    assert len(parts) == len(fitting) + bool(too_large)
    for part, (seconds, value) in zip(parts, fitting, strict=False):
        field, name, shown, equal, percent, word = AGAINST.fullmatch(part).groups()
        assert (field, name, shown) == (reason.field, value, format_seconds(seconds))
        change = seconds / own_s - 1
        if equal:
            assert abs(change) < 0.0005
        else:
            assert float(percent) == pytest.approx(100 * abs(change), abs=0.051)
            assert word == ("slower" if change > 0 else "faster")
    if too_large:
        names, least = TOO_LARGE.fullmatch(parts[-1]).groups()
        assert names.split(", ") == [f"{reason.field} {value}" for _, value in too_large[:3]]
        assert least == format_bytes(too_large[0][0])


def test_some_values_fit_nowhere_and_are_named():
    found = found_with(5, 0.3)
    row = int(found.ranking[0])
    (tp,) = [reason for reason in explain_choices(found, row) if reason.field == "tp"]
    assert "does not fit with tp 3" in tp.text


def test_a_field_with_one_value_needs_no_reason():
    space = enumerate_space(asked("dense", 4, "llm-foundry", seq_len=96, batch=4).setting, {"micro_batch": 1})
    one = Scored(np.ones(len(space.plans)), np.ones(len(space.plans)), np.ones(len(space.plans), dtype=bool))
    found = search_all(space, lambda plans: one, lambda plans: np.ones(len(plans), dtype=bool))
    assert {reason.field for reason in explain_choices(found, 0)} == {"sharding", "recompute"}
