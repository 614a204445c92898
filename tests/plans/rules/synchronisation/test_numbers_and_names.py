"""Numbers out of range and unknown names, each by the path of its key."""

import pytest
from plan_cases import short_plan

from meshwright.errors import InputError, written
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.files.yaml_text import read_mapping
from meshwright.plans.rules.synchronisation.numbers_and_names import (
    NAMES,
    NUMBERS,
    number_and_name_problems,
    values,
)
from meshwright.plans.synchronisation.synchronisation import STATES, Synchronisation


def entry(**keys):
    return Synchronisation.model_validate({"state": "parameter", "over": "dp_replicate", **keys})


FULL = [
    entry(every=4, fragments={"count": 2}, delay=1, merge=0.5),
    entry(every={"qsr": {"base": 4, "alpha": 0.01}}, fragments=2),
    *(
        entry(compress=compress)
        for compress in (
            {"quantise": "int8", "bucket": 64, "cast": "bf16"},
            {"ternary": {"clip": 2.5}},
            {"low_rank": 2},
            {"low_rank": {"budget": 2}},
            {"dct": {"chunk": 64, "keep": 8}},
            {"select": {"keep": 0.25}},
            {"top_k": 0.01},
            {"random_k": 0.01},
            {"sketch": {"width": 0.1}},
            {"lsh": {}},
        )
    ),
    *(
        entry(combine=combine)
        for combine in (
            {"trimmed_mean": 1},
            {"krum": 1},
            {"flag": {"rank": 2}},
            {"coded": {"tolerate": 1, "burst": 1, "window": 2, "stragglers": 3}},
        )
    ),
    entry(**{"with": {"quorum": 3}}),
    entry(**{"with": {"quorum": "dynamic"}}),
    entry(outer={"sgd": {"lr": 1.0}}),
    entry(outer={"momentum": {"lr": 1.0, "clip": 1.0}}),
    entry(outer={"nesterov": {"lr": 0.7}}),
    entry(outer={"adam": {"lr": 0.7}}),
]


def with_value(full, path, value):
    """The entry with another value at the path."""
    data = full.model_dump(by_alias=True, exclude_none=True)
    *sections, key = path.split(".")
    inner = data
    for section in sections:
        inner[section] = list(inner[section]) if isinstance(inner[section], tuple) else inner[section]
        inner = inner[section]
    inner[int(key) if isinstance(inner, list) else key] = value
    return Synchronisation.model_validate(tuples(data))


def tuples(data):
    if isinstance(data, dict):
        return {key: tuples(item) for key, item in data.items()}
    return tuple(data) if isinstance(data, list) else data


def test_full_entries_break_no_range():
    assert [list(number_and_name_problems("synchronise.0", full)) for full in FULL] == [[]] * len(FULL)


@pytest.mark.parametrize("path", NUMBERS)
def test_each_number_has_a_range(path):
    full = next(one for one in FULL if isinstance(values(one).get(path), int | float))
    (problem,) = number_and_name_problems("synchronise.3", with_value(full, path, -1))
    assert (problem.field, problem.value) == (f"synchronise.3.{path}", -1)
    assert problem.rule.startswith("must be")
    assert problem.suggestion


@pytest.mark.parametrize("path", [path for path, rule in NUMBERS.items() if "whole" in rule.rule])
def test_counts_are_whole(path):
    full = next(one for one in FULL if isinstance(values(one).get(path), int | float))
    (problem,) = number_and_name_problems("synchronise.0", with_value(full, path, 1.5))
    assert "whole number" in problem.rule


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ({"over": "dp"}, "one of dp_replicate, dp_shard"),
        ({"over": "tp"}, "one of dp_replicate, dp_shard"),
        ({"over": "dp_replicat"}, "did you mean dp_replicate?"),
        ({"over": "dp", "state": "expert_token"}, "one of ep"),
        ({"over": "dp", "state": "weights"}, "one of dp_replicate, dp_shard, ep"),
    ],
)
def test_unknown_axes_get_those_that_the_state_may_have(keys, hint):
    found = {one.field: one.suggestion for one in number_and_name_problems("synchronise.0", entry(**keys))}
    assert found["synchronise.0.over"] == hint


@pytest.mark.parametrize(
    "keys", [{"every": True}, {"every": (1,)}, {"merge": "x"}, {"compress": {"low_rank": True}}]
)
def test_what_is_no_number_is_one_problem_at_its_key(keys):
    with pytest.raises(InputError) as error:
        parse_plan(
            dump_plan(short_plan({"dp_replicate": 64})).replace("\n...", "\n" + text_of(keys) + "\n...")
        )
    (problem,) = error.value.problems
    path = next(iter(keys)) if "compress" not in keys else "compress.low_rank"
    assert (problem.field, problem.rule) == (f"synchronise.0.{path}", "must be a number")


def text_of(keys):
    return f"synchronise: [{written({'state': 'parameter', 'over': 'dp_replicate', **keys})}]"


def test_numbers_that_are_not_finite_are_named_with_their_entry():
    with pytest.raises(InputError) as error:
        parse_plan("synchronise: [{merge: 1}, {outer: {sgd: {lr: .inf}}}]", "p.yaml")
    assert [problem.field for problem in error.value.problems] == ["p.yaml: synchronise.1.outer.sgd.lr"]


@pytest.mark.parametrize("text", ["a", "{state: parameter, over: dp_replicate}", "[a]"])
def test_what_is_no_list_of_entries_gets_a_line_to_write(text):
    with pytest.raises(InputError) as error:
        parse_plan(f"plan: 1\nsynchronise: {text}")
    (problem,) = [one for one in error.value.problems if one.field.startswith("synchronise")]
    line = problem.suggestion.removeprefix("write `").removesuffix("`")
    assert Synchronisation.model_validate(read_mapping(line, "line")["synchronise"][0]).state in STATES


@pytest.mark.parametrize("path", NAMES)
def test_each_name_is_known(path):
    written = [one for one in FULL if isinstance(values(one).get(path), str)]
    full = written[0] if written else FULL[0]
    (problem,) = number_and_name_problems("synchronise.0", with_value(full, path, "strange"))
    assert (problem.field, problem.value) == (f"synchronise.0.{path}", "strange")
    assert "unknown name" in problem.rule
    assert problem.suggestion
