"""Every schedule with everything that changes what its passes compute or exchange: one by one, and pair by pair."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product

from covering_plans import Proven

from greedy_cover import greedy_cover
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.vocabulary import FORMS
from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK

PP = 2
MICRO_BATCHES = 4
UNEVEN = {2: (3, 1), 4: (1, 2, 3, 1)}
"""Layers of stages by the number of stages."""
LEVELS = {
    "stages": ("even", "uneven"),
    "tables": ("apart", "tied"),
    "sharding": ("none", "replicated", "zero1", "zero3"),
    "tensors": ("whole", "tp and sp"),
    "recompute": ("none", "full", "mixed"),
    "vocabulary": ("ends", *FORMS),
    "host": ("empty", "activations"),
}
"""What each schedule is crossed with; the first level of each is the plain one."""
Levels = Mapping[str, str]
PLAIN = {factor: levels[0] for factor, levels in LEVELS.items()}


def schedules() -> tuple[str, ...]:
    """All that the runtime executes."""
    return load_stack(OWN_STACK).schedules


def possible(schedule: str, levels: Levels) -> bool:
    """Whether a schedule can be crossed with these: a vocabulary is spread behind one last stage."""
    if levels["vocabulary"] == "ends":
        return True
    return SCHEDULES[schedule].chains == 1 and FORMS[levels["vocabulary"]].only in (None, schedule)


def crossed(schedule: str, levels: Levels) -> Proven:
    """The plan."""
    kind = SCHEDULES[schedule]
    stages = PP * (kind.fixed_chunks or (2 if kind.chunked else 1)) // kind.chains
    uneven = UNEVEN[stages] if levels["stages"] == "uneven" else None
    layers = sum(uneven) if uneven else 4
    sharded, spread = levels["sharding"].startswith("zero"), levels["vocabulary"] != "ends"
    plan = Proven(
        "qwen3" if levels["tables"] == "tied" else "llama",
        pp=PP,
        dp_shard=2 if sharded else 1,
        dp_replicate=2 if levels["sharding"] == "replicated" else 1,
        sharding=levels["sharding"] if sharded else "none",
        schedule=schedule,
        vocabulary=levels["vocabulary"] if spread else None,
        micro_batches=MICRO_BATCHES,
        layers=layers,
        stages=uneven,
    )
    if levels["sharding"] == "zero3":
        plan = replace(plan, gather="per-step" if spread else "per-layer")
    if levels["tensors"] == "tp and sp":
        plan = replace(plan, tp=2, sequence_parallel=True)
    if levels["host"] == "activations":
        plan = replace(plan, offload="all")
    if levels["recompute"] == "mixed":
        return replace(plan, recomputes=("full", *["none", "selective", ("mlp",)] * layers)[:layers])
    return replace(plan, recompute=levels["recompute"])


def one_by_one() -> Iterator[Proven]:
    """Every schedule as it is, and with each level of each factor alone."""
    for schedule in schedules():
        yield crossed(schedule, PLAIN)
        for factor, others in LEVELS.items():
            for level in others[1:]:
                levels = PLAIN | {factor: level}
                if possible(schedule, levels):
                    yield crossed(schedule, levels)


def pair_by_pair() -> list[Proven]:
    """Plans, found greedily, in which every two levels of two factors (schedules are one) meet where they can."""
    everything = [
        (schedule, levels)
        for schedule in schedules()
        for chosen in product(*LEVELS.values())
        if possible(schedule, levels := dict(zip(LEVELS, chosen, strict=True)))
    ]
    chosen = greedy_cover([(_pairs(*candidate),) for candidate in everything])
    return [crossed(*everything[place]) for place in chosen]


def _pairs(schedule: str, levels: Levels) -> set[tuple[tuple[str, str], ...]]:
    return set(combinations([("schedule", schedule), *levels.items()], 2))
