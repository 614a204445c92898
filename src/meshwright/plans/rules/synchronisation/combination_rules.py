"""Rules on the keys ``combine`` and ``with`` of entries of gradients, against the number of replicas."""

from collections.abc import Callable, Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.plans.rules.synchronisation.numbers_and_names import legal_number
from meshwright.plans.synchronisation.combination import (
    PARTNERS,
    PLAIN_CODE,
    RULES,
    SCHEMES,
    Coded,
    Combination,
    Partners,
)
from meshwright.plans.synchronisation.gradient_code import gradient_code
from meshwright.plans.synchronisation.plan_axes import sharded_axes
from meshwright.plans.synchronisation.synchronisation import AXES, Synchronisation

GRADIENT = "gradient"
TOLERATE = "combine.coded.tolerate"
MOST_CODED = 64
"""Replicas up to which the conditions of codes are known."""
LINEAR = ("low_rank", "sketch")
"""Codecs whose messages are summed before they are decoded."""
OF_SEQUENTIAL = ("burst", "window", "stragglers")
Found = Iterator[Problem]


def one_rule(case: RuleInput) -> Found:
    """Require one rule in ``combine`` and one way in ``with``, and the keys that belong to a code."""
    for field, entry in _entries(case):
        for key, part, names, example in (
            ("combine", entry.combine, RULES, "{trimmed_mean: 1}"),
            ("with", entry.partners, PARTNERS, "{quorum: 6}"),
        ):
            if isinstance(part, Combination | Partners) and len(part.written) != 1:
                rule = f"must be one of {', '.join(names)}; there are {len(part.written)}"
                yield Problem(f"{field}.{key}", list(part.written), rule, f"{key}: {example}")
        if _of_one_rule(entry) and entry.coded is not None:
            yield from _code(f"{field}.combine.coded", entry.coded)


def _code(field: str, coded: Coded) -> Found:
    if coded.scheme not in SCHEMES:
        return
    plain = coded.scheme == PLAIN_CODE
    needed, others = (("tolerate",), OF_SEQUENTIAL) if plain else (OF_SEQUENTIAL, ("tolerate",))
    for key in needed:
        if getattr(coded, key) is None:
            yield Problem(f"{field}.{key}", None, f"scheme {coded.scheme} needs {key}", f"{key}: 1")
    for key in others:
        if getattr(coded, key) is not None:
            rule = f"scheme {coded.scheme} has no {key}"
            yield Problem(f"{field}.{key}", getattr(coded, key), rule, f"take {key} out")


def counts_of_replicas(case: RuleInput) -> Found:
    """Require enough replicas for a quorum, a code or a rule."""
    for field, entry in _combining(case):
        replicas = case.degrees[entry.axis]
        if replicas == 1:
            continue
        quorum, fewest = entry.quorum, replicas
        if isinstance(quorum, int | float) and legal_number("with.quorum", quorum):
            if quorum > replicas:
                rule = f"quorum ≤ {entry.axis}: {quorum} > {replicas}"
                yield Problem(f"{field}.with.quorum", quorum, rule, f"quorum: {replicas - 1}")
                continue
            fewest = int(quorum)
        for rule_name, problems in OF_RULES.items():
            if entry.combination == rule_name:
                yield from problems(field, entry, fewest)


def _trimmed(field: str, entry: Synchronisation, replicas: int) -> Found:
    cut = entry.combination_options
    if isinstance(cut, int | float) and legal_number("combine.trimmed_mean", cut) and 2 * cut >= replicas:
        rule = f"2·f < gradients that are combined: 2·{cut} ≥ {replicas}"
        yield Problem(f"{field}.combine.trimmed_mean", cut, rule, f"trimmed_mean: {(replicas - 1) // 2}")


def _krum(field: str, entry: Synchronisation, replicas: int) -> Found:
    wrong = entry.combination_options
    if isinstance(wrong, int | float) and legal_number("combine.krum", wrong) and replicas < 2 * wrong + 3:
        rule = f"gradients that are combined ≥ 2·f + 3: {replicas} < {2 * wrong + 3}"
        hint = f"krum: {(replicas - 3) // 2}" if replicas >= 3 else "combine: median"
        yield Problem(f"{field}.combine.krum", wrong, rule, hint)


def _flag(field: str, entry: Synchronisation, replicas: int) -> Found:
    flag = entry.combine.flag if isinstance(entry.combine, Combination) else None
    if flag is not None and legal_number("combine.flag.rank", flag.rank) and flag.rank > replicas:
        rule = f"rank ≤ gradients that are combined: {flag.rank} > {replicas}"
        yield Problem(f"{field}.combine.flag.rank", flag.rank, rule, f"rank: {replicas}")


def _coded(field: str, entry: Synchronisation, replicas: int) -> Found:
    said = entry.coded
    for key in ("tolerate", "stragglers"):
        value = getattr(said, key)
        if value is not None and legal_number(f"combine.coded.{key}", value) and value >= replicas:
            rule = f"{key} < {entry.axis}: {value} ≥ {replicas}"
            yield Problem(f"{field}.combine.coded.{key}", value, rule, f"{key}: {replicas - 1}")


OF_RULES: dict[str, Callable[[str, Synchronisation, int], Found]] = {
    "trimmed_mean": _trimmed,
    "krum": _krum,
    "flag": _flag,
    "coded": _coded,
}


def keys_that_exclude_each_other(case: RuleInput) -> Found:
    """Refuse codecs and quorums that a rule does not go with, and rules over axes that shard gradients."""
    sharded = sharded_axes(case.plan, case.layout)
    for field, entry in _combining(case):
        codecs = entry.compress.written if entry.compress else ()
        key = "combine" if entry.combine is not None else "with"
        if entry.axis in sharded:
            rule = f"{case.plan.sharding} shards states over {entry.axis}: no rank there has a whole gradient"
            yield Problem(f"{field}.{key}", _said(entry), rule, "over: dp_replicate, or sharding: none")
        if entry.takes_rows and {*codecs} & {*LINEAR}:
            rule = (
                f"{entry.combination} needs the gradient of each replica, and {codecs[0]} decodes their sum"
            )
            yield Problem(f"{field}.compress", codecs[0], rule, "quantise: int8, or combine: mean")
        if entry.coded is not None and entry.quorum is not None:
            rule = "a code says by itself how many replicas may be late"
            yield Problem(f"{field}.with.quorum", entry.quorum, rule, "take with out")
        if entry.coded is not None and codecs:
            rule = "a code's sums are exact, and a codec's are not"
            yield Problem(f"{field}.compress", ", ".join(codecs), rule, "take compress out")


def conditions_of_codes(case: RuleInput) -> Found:
    """Warn of the rounding of cyclic codes: report the worst condition number of the rows that arrive."""
    for field, entry in _combining(case):
        replicas, coded = case.degrees[entry.axis], entry.coded
        if coded is None or coded.tolerate is None or not legal_number(TOLERATE, coded.tolerate):
            continue
        if 0 < coded.tolerate < replicas <= MOST_CODED:
            code = gradient_code(replicas, int(coded.tolerate))
            if not code.repeats:
                rule = f"a cyclic code of {replicas} replicas has condition number {code.worst_condition:.3g} at worst"
                hint = f"groups of tolerate + 1 that divide {replicas} have 1"
                yield Problem(f"{field}.{TOLERATE}", coded.tolerate, rule, hint, "warning")
        elif replicas > MOST_CODED:
            rule = f"codes of up to {MOST_CODED} replicas have been tried; {entry.axis} = {replicas}"
            yield Problem(f"{field}.combine.coded", replicas, rule, f"with: {{quorum: {replicas - 1}}}")


def _said(entry: Synchronisation) -> str:
    return entry.combination if entry.combine is not None else "quorum"


def _entries(case: RuleInput) -> Iterator[tuple[str, Synchronisation]]:
    for place, entry in enumerate(case.plan.synchronise):
        yield f"synchronise.{place}", entry


def _of_one_rule(entry: Synchronisation) -> bool:
    parts = [part for part in (entry.combine, entry.partners) if isinstance(part, Combination | Partners)]
    return all(len(part.written) == 1 for part in parts)


def _combining(case: RuleInput) -> Iterator[tuple[str, Synchronisation]]:
    """Yield the entries of gradients with a rule or a quorum, over known axes."""
    for field, entry in _entries(case):
        known = entry.state == GRADIENT and entry.over in AXES and entry.over != "ep"
        if known and _of_one_rule(entry) and entry.combines:
            yield field, entry


COMBINATION_RULES: tuple[Rule, ...] = (
    one_rule,
    counts_of_replicas,
    keys_that_exclude_each_other,
    conditions_of_codes,
)
