"""What cuts a step's work, each at degree 2, two by two and three by three: on at most eight ranks.

A *part* is a factor with one of its levels: a pipeline of one family, replicas, shards, tensors, a form of context
parallelism. Every two parts of different factors are a pair, every three a triple.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, cycle, product

from covering_plans import Proven

from greedy_cover import greedy_cover
from meshwright.plans.context_parallel import Context

FORMS = ("ring", "all-gather", "ulysses", "token-ring", "rsa")
TWO_DIMENSIONS = {f"{form} of ulysses": Context(form=form, ulysses=2) for form in FORMS if form != "ulysses"}
PARTS = {
    "pipeline": {name: {"pp": 2, "schedule": name} for name in ("1f1b", "zb-h1", "v-half")},
    "replicas": {"replicas": {"dp_replicate": 2}},
    "shards": {"zero3": {"dp_shard": 2, "sharding": "zero3"}},
    "tensors": {"tp and sp": {"tp": 2, "sequence_parallel": True}},
    "experts": {
        "ep": {"model": "mixtral", "ep": 2},
        "etp": {"model": "qwen3_moe", "etp": 2},
        "latent": {"model": "deepseek_v3", "ep": 2},
    },
    "context": {form: {"cp": 2, "context": form} for form in FORMS}
    | {name: {"cp": 4, "context": context} for name, context in TWO_DIMENSIONS.items()},
}
"""What a plan says for each part."""
LATER = ("all-gather of ulysses", "token-ring of ulysses", "rsa of ulysses")
"""Levels that pairs leave to the triples."""
FAMILIES = ("llama", "qwen3", "bloom", "mistral", "gemma2", "gpt2")
"""Windows, slopes, caps, tied tables, learned positions."""
MOST_RANKS = 8
Part = tuple[str, str]
Composed = tuple[Part, ...]


def parts() -> Iterator[Part]:
    """All of them."""
    return ((factor, level) for factor, levels in PARTS.items() for level in levels)


def together(count: int) -> list[Composed]:
    """Every so many parts of different factors whose ranks are no more than the most, with context among them."""
    found = []
    for factors in combinations(PARTS, count):
        for levels in product(*(PARTS[factor] for factor in factors)):
            composed = tuple(zip(factors, levels, strict=True))
            if "context" in factors and plan_of(composed).ranks <= MOST_RANKS:
                found.append(composed)
    return found


def plan_of(composed: Composed, family: str = "llama") -> Proven:
    """A plan with these parts alone."""
    plan = Proven(family, micro_batches=4, layers=4)
    for factor, level in composed:
        plan = replace(plan, **PARTS[factor][level])
    return plan


def pair_by_pair() -> list[Proven]:
    """Triples in which every pair meets, found greedily; families in turn."""
    levels = {name for name in PARTS["context"] if name not in LATER}
    candidates = [one for one in together(3) + together(2) if dict(one)["context"] in levels]
    chosen = greedy_cover([(_pairs(composed),) for composed in candidates])
    return _plans([candidates[place] for place in chosen])


def three_by_three() -> list[Proven]:
    """All triples."""
    return _plans(together(3))


def _pairs(composed: Composed) -> set[Composed]:
    return {pair for pair in combinations(composed, 2) if any(factor == "context" for factor, _ in pair)}


def _plans(chosen: list[Composed]) -> list[Proven]:
    return [plan_of(composed, family) for composed, family in zip(chosen, cycle(FAMILIES), strict=False)]
