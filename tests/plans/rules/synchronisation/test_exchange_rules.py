"""Keys of one entry that belong together, exclude each other, or say nothing."""

import pytest

from meshwright.plans.rules.synchronisation.exchange_rules import ENTRY_RULES, entry_problems
from meshwright.plans.synchronisation.synchronisation import Synchronisation

QSR = {"qsr": {"base": 4, "alpha": 0.01}}
SGD = {"sgd": {"lr": 1.0}}
GRADIENT = {"state": "gradient"}
TOKENS = {"state": "expert_token", "over": "ep", "compress": {"lsh": {}}}
MOMENT = {"state": "first_moment"}


def entry(keys):
    return Synchronisation.model_validate({"state": "parameter", "over": "dp_replicate", **keys})


GOOD = [
    {},
    TOKENS,
    MOMENT | {"every": 4, "delay": 4, "merge": 0.5, "fragments": 2},
    {"every": 100, "fragments": 8, "delay": 5, "merge": 0.5, "outer": {"nesterov": {"lr": 0.7}}},
    {"every": 1, "delay": 1, "own": "fresh", "outer": SGD},
    {"every": QSR, "delay": 3},
    {"outer": "none"},
    GRADIENT | {"outer": "none", "compress": {"low_rank": {"budget": 2}, "error_feedback": True}},
    GRADIENT | {"compress": {"quantise": "int8", "bucket": 64, "rounding": "stochastic", "layers": "0..9"}},
    GRADIENT | {"compress": {"dct": {"chunk": 64, "keep": 64}, "cast": "bf16", "layers": "3"}},
]


@pytest.mark.parametrize("keys", GOOD)
def test_good_entries_have_no_problem(keys):
    assert list(entry_problems("synchronise.0", entry(keys))) == []


BAD = [
    ({"every": 5, "delay": 6}, "delay", "delay ≤ every: 6 > 5"),
    ({"every": QSR, "delay": 4}, "delay", "with a rule delay stays below its base: 4 ≥ 4"),
    ({"every": 4, "delay": 3, "own": "fresh"}, "own", "fresh needs delay = every: 3 ≠ 4"),
    ({"every": QSR, "own": "fresh"}, "own", "fresh needs delay = every"),
    ({"every": {}}, "every", "must have one rule"),
    ({"every": QSR | {"probability": 0.1}}, "every", "has two rules"),
    (GRADIENT | {"every": 4}, "every", "gradients are exchanged in every step"),
    (GRADIENT | {"outer": SGD}, "outer", "only compress"),
    (GRADIENT | {"delay": 1}, "delay", "only compress"),
    (GRADIENT | {"merge": 0.5}, "merge", "only compress"),
    (GRADIENT | {"fragments": 2}, "fragments", "only compress"),
    (GRADIENT | {"weigh": "equal"}, "weigh", "only compress"),
    (MOMENT | {"outer": SGD}, "outer", "moves parameters only"),
    (MOMENT | {"own": "fresh", "delay": 1}, "own", "of changes"),
    ({"outer": {}}, "outer", "there are 0"),
    ({"outer": SGD | {"nesterov": {"lr": 0.7}}}, "outer", "there are 2"),
    ({"compress": {}}, "compress", "there are 0"),
    ({"compress": {"top_k": 0.1, "random_k": 0.1}}, "compress", "there are 2"),
    ({"compress": {"lsh": {}}}, "compress", "and of it alone"),
    (TOKENS | {"compress": {"top_k": 0.1}}, "compress", "and of it alone"),
    (TOKENS | {"compress": None}, "compress", "needs a codec"),
    (TOKENS | {"over": "dp_replicate"}, "over", "travels over ep"),
    (TOKENS | {"every": 2}, "every", "in every pass"),
    ({"over": "ep"}, "over", "travels over ep"),
    ({"compress": {"top_k": 0.1, "bucket": 64}}, "compress.bucket", "top_k has no bucket"),
    ({"compress": {"ternary": {}, "rounding": "stochastic"}}, "compress.rounding", "quantise has"),
    (
        {"compress": {"select": {"keep": 0.5}, "error_feedback": True}},
        "compress.error_feedback",
        "has no error",
    ),
    (TOKENS | {"compress": {"lsh": {}, "error_feedback": True}}, "compress.error_feedback", "lsh has no"),
    ({"compress": {"low_rank": 2, "cast": "bf16"}}, "compress.cast", "low_rank has no cast"),
    ({"compress": {"dct": {"chunk": 8, "keep": 9}}}, "compress.dct.keep", "keep ≤ chunk: 9 > 8"),
    ({"merge": 2}, "merge", "must be above 0 and at most 1"),
    ({"merge": 0}, "merge", "must be above 0 and at most 1"),
    ({"every": -3}, "every", "must be a whole number"),
    ({"every": -3, "delay": 2, "own": "fresh"}, "every", "must be a whole number"),
    ({"every": 4, "delay": -1}, "delay", "must be a whole number"),
    (TOKENS | {"over": "dp"}, "over", "unknown name"),
]


@pytest.mark.parametrize(("keys", "key", "rule"), BAD)
def test_bad_entries_are_named(keys, key, rule):
    (problem,) = entry_problems("synchronise.2", entry(keys))
    assert problem.field == f"synchronise.2.{key}"
    assert rule in problem.rule
    assert problem.suggestion


@pytest.mark.parametrize(
    ("keys", "shown", "hint"),
    [
        (GRADIENT | {"outer": SGD}, "outer = {sgd: {lr: 1.0}}", "take outer out"),
        ({"outer": {}}, "outer = {}", "outer: {nesterov: {lr: 0.7}}"),
        ({"compress": {"top_k": 0.1, "quantise": "int8"}}, "compress = {quantise: int8, top_k: 0.1}", None),
        (
            {"every": QSR | {"probability": 0.1}},
            "every = {qsr: {base: 4, alpha: 0.01}, probability: 0.1}",
            None,
        ),
    ],
)
def test_values_are_shown_as_in_the_file_and_suggestions_are_lines_of_it(keys, shown, hint):
    (problem,) = entry_problems("synchronise.0", entry(keys))
    assert str(problem).startswith(f"synchronise.0.{shown}: ")
    assert problem.suggestion == (hint or problem.suggestion)
    assert "…" not in problem.suggestion


def test_every_rule_has_a_case():
    bad = [entry(keys) for keys, _, _ in BAD]
    assert all(any(list(rule("synchronise.0", one)) for one in bad) for rule in ENTRY_RULES)


def test_all_problems_come_at_once():
    strange = GRADIENT | {"every": 4, "delay": 9, "own": "mine", "compress": {"top_k": 7, "ternary": {}}}
    found = {problem.field.partition(".")[2] for problem in entry_problems("synchronise.0", entry(strange))}
    assert {"0.every", "0.delay", "0.own", "0.compress", "0.compress.top_k"} <= found
