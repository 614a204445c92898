"""Types of states, optimizers, adapters and shares on the host, pair by pair with one another and with every axis.

Every two levels of different factors meet in a plan, unless ``REFUSED`` has them: the checks of plans refuse these.
"""

import random
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations, cycle, product

from covering_plans import Proven

from greedy_cover import greedy_cover

MOST_RANKS = 8
DENSE = ("llama", "qwen3", "gpt2", "gemma2")
SEED, TRIES = "states", 6
Levels = Mapping[str, str]
Pair = frozenset[tuple[str, str]]
"""Two of (factor, level)."""

PAIRS = (("rank", 8), ("alpha", 6.0))
"""Experts' grouped products pad narrower rows."""
LEVELS: Mapping[str, Mapping[str, dict[str, object]]] = {
    "types": {
        "wide": {},
        "bf16 gradients": {"dtypes": (("gradient", "bf16"), ("reduce", "bf16"))},
        "bf16 momentum": {"dtypes": (("reduce", "bf16"), ("first_moment", "bf16"))},
        "fp8 second moment": {"dtypes": (("first_moment", "bf16"), ("second_moment", "fp8"))},
        "no master copy": {"dtypes": (("master", "none"), ("gradient", "bf16"))},
        "fp16 master copy": {"dtypes": (("master", "fp16"), ("gather", "fp32"))},
    },
    "optimizer": {
        "adamw": {},
        "sgd": {"optimizer": (("name", "sgd"), ("momentum", 0.9), ("nesterov", True))},
        "lion": {"optimizer": "lion"},
        "muon by block": {"optimizer": (("name", "muon"), ("others", "sgd"))},
        "muon duplicated": {"optimizer": (("name", "muon"), ("tensor", "duplicated"), ("scale", "unit-rms"))},
        "muon distributed": {"optimizer": (("name", "muon"), ("tensor", "distributed"), ("scale", "shape"))},
        "zo-sgd": {"optimizer": (("name", "zo-sgd"), ("epsilon", 1e-3))},
        "zo-sgd split": {"optimizer": (("name", "zo-sgd"), ("epsilon", 1e-3), ("perturbations", "split"))},
    },
    "adapter": {
        "none": {},
        "lora": {"adapter": PAIRS},
        "lora on int8": {"adapter": (*PAIRS, ("base", "int8"))},
        "lora on nf4": {
            "adapter": (*PAIRS, ("base", "nf4")),
            "sizes": (("hidden_size", 128), ("intermediate_size", 256), ("head_dim", 32)),
        },
        "hd-pissa": {"adapter": (("form", "hd-pissa"), ("rank", 2), ("targets", ("q", "k", "v", "o")))},
    },
    "host": {
        "nothing": {},
        "half the optimizer": {"on_host": (("optimizer", 0.5),)},
        "the optimizer": {"on_host": (("optimizer", 1.0),)},
        "the parameters": {"on_host": (("parameters", 1.0),)},
        "unequal shares": {"on_host": (("optimizer", 0.3), ("parameters", 0.7))},
        "everything": {"on_host": (("optimizer", 1.0), ("parameters", 1.0))},
    },
    "tp": {"1": {}, "2": {"tp": 2, "sequence_parallel": True}},
    "pp": {"1": {}, "2": {"pp": 2, "micro_batches": 4, "layers": 4}},
    "schedule": {"1f1b": {}, "zb-h1": {"schedule": "zb-h1"}, "zb-v": {"schedule": "zb-v"}},
    "sharding": {
        "none": {},
        "replicas": {"dp_replicate": 2},
        "zero1": {"dp_shard": 2, "sharding": "zero1"},
        "zero2": {"dp_shard": 2, "sharding": "zero2"},
        "zero3": {"dp_shard": 2, "sharding": "zero3", "gather": "per-layer"},
        "zero3 of replicas": {
            "dp_shard": 2,
            "dp_replicate": 2,
            "sharding": "zero3",
            "gather": "per-layer",
        },
        "zero3 by micro-batch": {"dp_shard": 2, "sharding": "zero3", "gather": "per-micro-batch"},
    },
    "cp": {"1": {}, "2": {"cp": 2}},
    "ep": {"1": {}, "2": {"ep": 2}},
}
"""What a level writes in a plan; the first of each factor is the plain one."""
PLAIN = {factor: next(iter(levels)) for factor, levels in LEVELS.items()}
MUON = tuple(name for name in LEVELS["optimizer"] if name.startswith("muon"))
TWO_LOSSES = ("zo-sgd", "zo-sgd split")
QUANTISED = ("lora on int8", "lora on nf4")
LORA = ("lora", *QUANTISED)
ON_HOST = tuple(LEVELS["host"])[1:]
STEPPED_THERE = ("half the optimizer", "the optimizer", "unequal shares", "everything")
FETCHED = ("the parameters", "unequal shares", "everything")
RULES: tuple[tuple[str, tuple[str, ...], str, tuple[str, ...], str], ...] = (
    (
        "types",
        ("bf16 gradients", "bf16 momentum", "no master copy"),
        "optimizer",
        TWO_LOSSES,
        "has no gradients",
    ),
    (
        "types",
        ("fp8 second moment",),
        "optimizer",
        ("sgd", "lion", "muon by block", *TWO_LOSSES),
        "is no state of",
    ),
    ("types", ("bf16 gradients", "bf16 momentum"), "host", STEPPED_THERE, "the host sums gradients in fp32"),
    (
        "types",
        ("fp8 second moment",),
        "host",
        ("half the optimizer", "unequal shares"),
        "a share of a moment whose scale is that of a whole piece",
    ),
    ("types", ("no master copy",), "host", ON_HOST, "the host steps a master copy, and there is none"),
    ("optimizer", TWO_LOSSES, "adapter", (*LORA, "hd-pissa"), "zo-sgd trains all parameters"),
    ("optimizer", ("sgd", "lion", *MUON), "adapter", ("hd-pissa",), "hd-pissa steps AdamW on each rank"),
    (
        "optimizer",
        MUON,
        "host",
        STEPPED_THERE,
        "the host only steps element by element, and muon multiplies matrices",
    ),
    ("optimizer", MUON, "host", ("the parameters",), "parameters on the host that muon steps as matrices"),
    ("optimizer", TWO_LOSSES, "host", STEPPED_THERE, "zo-sgd has no optimizer states"),
    (
        "optimizer",
        TWO_LOSSES,
        "host",
        ("the parameters",),
        "parameters on the host that forward passes perturb",
    ),
    (
        "optimizer",
        TWO_LOSSES,
        "schedule",
        ("zb-h1", "zb-v"),
        "zo-sgd has forward passes only, and runs gpipe and 1f1b",
    ),
    (
        "optimizer",
        TWO_LOSSES,
        "sharding",
        ("zero1", "zero2"),
        "zo-sgd has no gradients and no optimizer states that",
    ),
    (
        "optimizer",
        TWO_LOSSES,
        "sharding",
        ("zero3 by micro-batch",),
        "zo-sgd gathers parameters for each forward pass, layer by layer",
    ),
    (
        "optimizer",
        ("zo-sgd split",),
        "sharding",
        ("none", "zero3"),
        "two halves of the replicas compute one loss each",
    ),
    ("adapter", ("lora",), "host", ON_HOST, "states on the host of adapters"),
    ("adapter", QUANTISED, "host", ON_HOST[:2], "states on the host of adapters"),
    (
        "adapter",
        QUANTISED,
        "host",
        FETCHED,
        "frozen parameters with a type of their own stay on the devices",
    ),
    ("adapter", ("hd-pissa",), "host", ON_HOST, "hd-pissa steps on the devices"),
    ("adapter", ("hd-pissa",), "sharding", ("zero1", "zero2"), "hd-pissa has states of its own on each rank"),
    (
        "host",
        FETCHED,
        "sharding",
        ("zero1", "zero2"),
        "gathers whole parameters behind the step, and their home is the host",
    ),
    ("host", FETCHED, "sharding", ("zero3 by micro-batch",), "parameters come from the host layer by layer"),
    ("schedule", ("zb-v",), "pp", ("1",), "zb-v needs pp > 1"),
)
"""Levels of one factor that no plan has with levels of another, and what the checks of plans say of them."""
REFUSED: Mapping[Pair, str] = {
    frozenset(((one, a), (other, b))): reason
    for one, firsts, other, seconds, reason in RULES
    for a, b in product(firsts, seconds)
}


def every_pair() -> Iterator[Pair]:
    """Yield every two levels of different factors."""
    for one, other in combinations(LEVELS, 2):
        for a, b in product(LEVELS[one], LEVELS[other]):
            yield frozenset(((one, a), (other, b)))


def pairs_of(levels: Levels) -> set[Pair]:
    """Return the pairs that meet in a plan of these levels."""
    return {frozenset(two) for two in combinations(levels.items(), 2)}


def fits(levels: Levels) -> bool:
    """Return true if a plan of these levels has few enough ranks, and enough for experts."""
    plan = crossed("llama", levels)
    return plan.ranks <= MOST_RANKS and (plan.ranks // plan.pp) % plan.ep == 0


def crossed(model: str, levels: Levels) -> Proven:
    """Return the plan of these levels."""
    keys: dict[str, object] = {}
    for factor, level in levels.items():
        keys |= LEVELS[factor][level]
    return Proven(model, **keys)


def completed(pair: Pair, draw: random.Random) -> Levels | None:
    """Return random levels with this pair, of which no two are refused; None if these do not fit."""
    chosen = dict(pair)
    for factor in draw.sample(list(LEVELS), len(LEVELS)):
        if factor not in chosen:
            possible = [
                level
                for level in LEVELS[factor]
                if not any(frozenset(((factor, level), other)) in REFUSED for other in chosen.items())
            ]
            if not possible:
                return None
            chosen[factor] = draw.choice(possible)
    return {factor: chosen[factor] for factor in LEVELS} if fits(chosen) else None


@cache
def chosen_levels() -> list[Levels]:
    """Return the levels of plans, found greedily among random ones, in which all pairs meet that are not refused."""
    draw = random.Random(SEED)
    wanted = [pair for pair in every_pair() if pair not in REFUSED]
    found = [levels for pair in wanted for _ in range(TRIES) if (levels := completed(pair, draw))]
    return [found[place] for place in greedy_cover([(pairs_of(levels),) for levels in found])]


def model_of(levels: Levels, dense: Iterator[str]) -> str:
    """Return the tiny model that a plan of these levels has."""
    if levels["ep"] == "2":
        return "mixtral"
    return "llama" if levels["adapter"] == "lora on nf4" else next(dense)


def combinations_of_states() -> list[tuple[Levels, Proven]]:
    """Return the plans with their levels."""
    dense = cycle(DENSE)
    return [(levels, crossed(model_of(levels, dense), levels)) for levels in chosen_levels()]


def in_words(levels: Levels) -> str:
    """Return the levels that are not plain."""
    return ", ".join(
        f"{factor} {level}" if level.isdigit() else level
        for factor, level in levels.items()
        if level != PLAIN[factor]
    )
