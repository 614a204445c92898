"""Ranges of the numbers, and the known names, of an entry of ``synchronise``, by the path of their keys."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from meshwright.errors import Problem, nearest
from meshwright.plans.synchronisation.combination import ALL, AVERAGES, DYNAMIC, NAMED_RULES, SCHEMES
from meshwright.plans.synchronisation.compression import FORMATS, PATTERNS, ROUNDINGS
from meshwright.plans.synchronisation.outer_optimizer import OUTERS
from meshwright.plans.synchronisation.synchronisation import (
    AXES,
    FRAGMENT_PATTERNS,
    HOMES,
    NEVER,
    NO_OUTER,
    OWNS,
    STATES,
    WEIGHTS,
    Synchronisation,
)

MOST = 10**9
"""The largest whole number."""
CASTS = ("bf16", "fp16", "fp32")


@dataclass(frozen=True, slots=True)
class NumberRule:
    """Legal values of a number, in words and as a test, with an example."""

    rule: str
    legal: Callable[[float], bool]
    example: str


def _whole(least: int, example: int) -> NumberRule:
    return NumberRule(
        f"must be a whole number from {least} to {MOST}",
        lambda value: isinstance(value, int) and least <= value <= MOST,
        str(example),
    )


def _positive(example: str) -> NumberRule:
    return NumberRule("must be above 0", lambda value: value > 0, example)


def _share(example: str) -> NumberRule:
    return NumberRule("must be above 0 and at most 1", lambda value: 0 < value <= 1, example)


def _momentum(example: str) -> NumberRule:
    return NumberRule("must be from 0 to below 1", lambda value: 0 <= value < 1, example)


NUMBERS: Mapping[str, NumberRule] = {
    "every": _whole(1, 100),
    "every.qsr.base": _whole(1, 4),
    "every.qsr.alpha": _positive("0.0175"),
    "fragments": _whole(1, 8),
    "fragments.count": _whole(1, 8),
    "delay": _whole(0, 5),
    "merge": _share("0.5"),
    "compress.ternary.clip": _positive("2.5"),
    "compress.low_rank": _whole(1, 4),
    "compress.low_rank.budget": _whole(1, 4),
    "compress.dct.chunk": _whole(1, 64),
    "compress.dct.keep": _whole(1, 8),
    "compress.dct.momentum": _momentum("0.999"),
    "compress.select.keep": _share("0.25"),
    "compress.select.momentum": _momentum("0.999"),
    "compress.top_k": _share("0.01"),
    "compress.random_k": _share("0.01"),
    "compress.sketch.width": NumberRule(
        "must be above 0 and at most 100", lambda value: 0 < value <= 100, "0.1"
    ),
    "compress.sketch.rows": _whole(1, 3),
    "compress.lsh.hashes": _whole(1, 6),
    "compress.lsh.width": _whole(1, 16),
    "compress.lsh.distinct": _share("0.2"),
    "compress.bucket": _whole(1, 1024),
    "combine.trimmed_mean": _whole(0, 1),
    "combine.krum": _whole(0, 1),
    "combine.flag.rank": _whole(1, 2),
    "combine.coded.tolerate": _whole(0, 1),
    "combine.coded.burst": _whole(1, 1),
    "combine.coded.window": _whole(1, 2),
    "combine.coded.stragglers": _whole(1, 1),
    "with.quorum": _whole(1, 6),
    "outer.momentum.clip": _positive("1.0"),
    "outer.momentum.momentum": _momentum("0.9"),
    "outer.nesterov.momentum": _momentum("0.9"),
    "outer.adam.epsilon": _positive("1.0e-8"),
    "outer.adam.betas.0": _momentum("0.9"),
    "outer.adam.betas.1": _momentum("0.999"),
    **{f"outer.{name}.lr": _positive("0.7") for name in OUTERS},
}
NAMES: Mapping[str, tuple[str, ...]] = {
    "state": STATES,
    "over": AXES,
    "every": (NEVER,),
    "own": OWNS,
    "weigh": WEIGHTS,
    "keep": HOMES,
    "fragments.pattern": FRAGMENT_PATTERNS,
    "outer": (NO_OUTER,),
    "combine": NAMED_RULES,
    "combine.coded.scheme": SCHEMES,
    "combine.flag.average": AVERAGES,
    "with": (ALL, "pairs"),
    "with.quorum": (DYNAMIC,),
    "compress.quantise": FORMATS,
    "compress.rounding": ROUNDINGS,
    "compress.cast": CASTS,
    "compress.select.pattern": PATTERNS,
}
ALIKE = 0.6
"""The part that a near name shares: ``dp`` is none of ``ep``."""
MEANT = {
    "outer": (*OUTERS, NO_OUTER),
    "every": ("a whole number", "{qsr: {base: 4, alpha: 0.0175}}"),
    "combine": ("mean", "median", "{trimmed_mean: 1}", "{krum: 1}", "{flag: {rank: 2}}"),
    "with": (ALL, "{quorum: 6}"),
    "with.quorum": ("a whole number", DYNAMIC),
}
"""What may stand in the place of a name of these keys."""


def axes_of_state(state: str) -> tuple[str, ...]:
    """Return the axes that entries of a state may name; of an unknown state all of them."""
    if state not in STATES:
        return AXES
    return tuple(axis for axis in AXES if (axis == "ep") == (state == "expert_token"))


def legal_number(path: str, value: object) -> bool:
    """Return true for a number in the range of its key."""
    return isinstance(value, int | float) and NUMBERS[path].legal(value)


def values(entry: Synchronisation) -> dict[str, object]:
    """Return every value of an entry by its dotted path; list items by their place."""
    return dict(_leaves(entry.to_data(), ""))


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    inside = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list) and path.startswith("outer")
        else ()
    )
    yield path, value
    for key, item in inside:
        yield from _leaves(item, f"{path}.{key}" if path else str(key))


def number_and_name_problems(field: str, entry: Synchronisation) -> Iterator[Problem]:
    """Yield numbers out of range and unknown names of the entry at ``field``."""
    for path, value in values(entry).items():
        key = path.rpartition(".")[2]
        number, names = NUMBERS.get(path), NAMES.get(path)
        if isinstance(value, str) and names is not None and value not in names:
            known = axes_of_state(entry.state) if path == "over" else names
            hint = f"{key}: {'|'.join(MEANT[path])}" if path in MEANT else nearest(value, known, alike=ALIKE)
            yield Problem(f"{field}.{path}", value, "unknown name", hint)
        elif number is not None and isinstance(value, int | float) and not number.legal(value):
            hint = number.example if key.isdigit() else f"{key}: {number.example}"
            yield Problem(f"{field}.{path}", value, number.rule, hint)
