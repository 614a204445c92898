"""Schedules compared under several memory limits, with those that a search finds."""

from xml.etree.ElementTree import fromstring

import pytest

from meshwright import api
from meshwright.errors import InfeasibleError, InputError
from meshwright.verbs.schedule.schedule_request import ScheduleRequest, parse_limits
from meshwright.verbs.schedule.solve_chain import ScheduleSearchOptions

SIZE = {"stages": 4, "micro_batches": 8}
QUICK = ScheduleSearchOptions(time_budget=0.2)


def rows_of(names, limits, **changes):
    found = api.compare_schedules(names, ScheduleRequest(**SIZE, **changes), limits, QUICK)
    return found, found.to_json()["rows"]


def test_every_schedule_has_a_row_for_each_limit():
    found, rows = rows_of(("1f1b", "zero-bubble", "auto"), (4, 8, 16))
    limits = {
        name: [row["memory_limit"] for row in rows if row["schedule"] == name]
        for name in ("1f1b", "zero-bubble", "auto")
    }
    assert limits == {name: [4, 8, 16] for name in limits}
    by = {(row["schedule"], row["memory_limit"]): row for row in rows}
    assert [by["1f1b", limit]["fits"] for limit in (4, 8, 16)] == [False, True, True]
    for name in ("zero-bubble", "auto"):
        bubbles = [by[name, limit]["bubble_rate"] for limit in (4, 8, 16)]
        assert bubbles == sorted(bubbles, reverse=True)
        assert all(max(by[name, limit]["peak_memory"]) <= limit for limit in (4, 8, 16))
    assert by["auto", 8]["makespan"] <= by["zero-bubble", 8]["makespan"]
    picture = fromstring(found.svg())
    dots = [one for one in picture.iter() if one.tag.endswith("circle") and len(one)]
    assert len(dots) == sum(row["fits"] for row in rows)


def test_rows_are_those_of_single_limits():
    _, together = rows_of(("gpipe", "zb-v"), (4, 16))
    alone = [row for limit in (4, 16) for row in rows_of(("gpipe", "zb-v"), (), memory_limit=limit)[1]]
    assert sorted(together, key=str) == sorted(alone, key=str)


def test_auto_stands_beside_others_without_a_limit():
    found, rows = rows_of(("1f1b", "auto"), ())
    assert [row["schedule"] for row in rows] == ["1f1b", "auto"]
    assert rows[1]["makespan"] <= rows[0]["makespan"]
    assert found.svg().startswith("<")


def test_wrong_limits_are_named():
    assert parse_limits("4, 8,16") == (4, 8, 16)
    assert parse_limits(4) == parse_limits([4]) == (4,)
    assert parse_limits(None) == ()
    for wrong in ("4,x", "", "4,,8"):
        with pytest.raises(InputError, match="memory-limit"):
            parse_limits(wrong)
    with pytest.raises(InputError, match="above 0"):
        rows_of(("1f1b",), (4, -1))
    with pytest.raises(InputError, match="more than 32"):
        rows_of(("1f1b",), tuple(range(1, 40)))
    with pytest.raises(InfeasibleError, match="memory limit 4"):
        rows_of(("gpipe", "1f1b"), (2, 4))
