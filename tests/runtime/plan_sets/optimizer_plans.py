"""Plans with other optimizers than AdamW, drawn pairwise over optimizers, types of states and cuts of a model."""

from dataclasses import replace
from itertools import product

from covering_plans import Proven

from greedy_cover import greedy_cover

OPTIMIZERS = {
    "sgd": (("name", "sgd"), ("momentum", 0.9), ("nesterov", True)),
    "lion": (("name", "lion"), ("betas", (0.8, 0.9))),
    "qh-adamw": (("name", "qh-adamw"), ("omega", (0.4, 0.2)), ("betas", (0.99, 0.95))),
    "muon by block": (("name", "muon"), ("others", "sgd")),
    "muon duplicated": (
        ("name", "muon"),
        ("tensor", "duplicated"),
        ("scale", "unit-rms"),
        ("others", "lion"),
    ),
    "muon distributed": (("name", "muon"), ("tensor", "distributed"), ("scale", "shape"), ("steps", 3)),
}
TYPES = {
    "usual types": (),
    "bf16 momentum": (("first_moment", "bf16"), ("reduce", "bf16")),
    "no master copy": (("master", "none"), ("gradient", "bf16"), ("first_moment", "bf16")),
}
CUTS = {
    "tp and zero1": Proven("llama", tp=2, dp_shard=2, sharding="zero1", sequence_parallel=True),
    "uneven zero2": Proven("qwen3", dp_shard=3, sharding="zero2"),
    "tp and zero3 by layer": Proven("gpt2", tp=2, dp_shard=2, sharding="zero3"),
    "cp and zero3": Proven("llama", dp_shard=2, cp=2, sharding="zero3", gather="per-micro-batch"),
    "split backward and tp": Proven("llama", pp=2, tp=2, schedule="zb-h1", micro_batches=4, layers=4),
    "tied ends and zero1": Proven("qwen3", pp=2, dp_shard=2, sharding="zero1", layers=4),
    "experts and zero1": Proven("mixtral", dp_shard=2, tp=2, ep=2, sharding="zero1", sequence_parallel=True),
    "cut experts": Proven("mixtral", tp=2, etp=2, dp_replicate=2, sequence_parallel=True),
    "two chains": Proven("llama", pp=2, tp=2, schedule="dualpipe", micro_batches=4, layers=4),
    "one rank": Proven("gpt2"),
}
CASES = list(product(OPTIMIZERS, TYPES, CUTS))
PAIRS = [({(a, b), (b, c), (a, c)},) for a, b, c in CASES]
FIRST = (
    ("muon duplicated", "bf16 momentum", "tp and zero1"),
    ("muon distributed", "usual types", "cut experts"),
    ("lion", "no master copy", "tp and zero3 by layer"),
    ("qh-adamw", "usual types", "tp and zero1"),
)
QUICK = FIRST[1], FIRST[3]
"""In every test run."""
DRAWN = [CASES[place] for place in greedy_cover(PAIRS)]
PLANS = {
    of: replace(CUTS[of[2]], optimizer=OPTIMIZERS[of[0]], dtypes=TYPES[of[1]])
    for of in dict.fromkeys((*FIRST, *DRAWN))
}
