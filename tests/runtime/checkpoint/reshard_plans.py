"""Plans of the same runs in many layouts, between which checkpoints go."""

from dataclasses import replace

from adapter_plans import ADAPTER, OWN
from covering_plans import Proven
from island_plans import parameters
from layout_plans import Ranged, layout
from local_plans import Small, small
from tiny_models import tiny

from meshwright.plans.synchronisation.synchronisation import Synchronisation

BATCH = 8
RANGED = Ranged(
    "mixtral",
    (
        ("a", layout(dp_shard=2, cp=2, sharding="zero3", gather="per-layer")),
        ("b", layout(dp_shard=2, tp=2, sequence_parallel=True, sharding="zero1")),
    ),
    tuple("aabbab"),
    micro_batches=4,
)
MODEL = RANGED.lowered()[1]
TIED = tiny("gemma2", num_hidden_layers=4)
PER_LAYER = {"sharding": "zero3", "gather": "per-layer"}
VOCABULARY = {"schedule": {"name": "1f1b", "vocabulary": "vocab-2"}}
ORDER = ((5, 1, 0, 3, 4, 2), (3, 0, 1, 2, 5, 4), (0, 2, 4, 1, 3, 5), (5, 4, 3, 2, 1, 0))


TWO_LAYOUTS = Ranged(
    "gemma2",
    (
        ("a", layout(dp_shard=2, tp=2, sequence_parallel=True, sharding="zero1")),
        ("b", layout(dp_shard=2, cp=2, sharding="zero3", gather="per-layer")),
    ),
    tuple("aaabbb"),
    pp=2,
    micro_batches=4,
    stages=(2, 2),
)
UNEVEN = replace(TWO_LAYOUTS, blocks=tuple("baabab"), pp=1, stages=None, micro_batches=2).with_shares(
    ((1, 3), (3, 1)), ((1, 3), (3, 0, 1, 4))
)


def ranged(plan):
    """A plan of several layouts as one of few ranks."""
    program, model = plan.lowered()
    return Small(model, program, plan.together * plan.micro_batches)


PLANS = {
    "one rank": small(MODEL),
    "tp": small(MODEL, tp=2, sequence_parallel=True),
    "tp of experts": small(MODEL, tp=2, ep=1, etp=2),
    "replicas": small(MODEL, dp_replicate=2),
    "zero1 and ep": small(MODEL, sharding="zero1", dp_shard=2, ep=2),
    "zero2 over four": small(MODEL, sharding="zero2", dp_shard=4),
    "zero3 by layer": small(MODEL, dp_shard=2, **PER_LAYER),
    "zero3 and tp": small(MODEL, dp_shard=2, tp=2, ep=2, etp=2, **PER_LAYER),
    "replicas of shards": small(MODEL, sharding="zero3", dp_shard=2, dp_replicate=2),
    "cp": small(MODEL, cp=2, dp_shard=2, sharding="zero1"),
    "uneven stages": ranged(
        Ranged(
            "mixtral",
            (("a", layout(dp_shard=2, sharding="zero1")),),
            ("a",) * 6,
            pp=2,
            micro_batches=4,
            stages=(1, 3),
        )
    ),
    "split passes": small(MODEL, {"schedule": "zb-h1"}, pp=4),
    "mirrored stages": small(
        MODEL, {"schedule": "dualpipe", "virtual_stages": 2}, sharding="zero2", pp=2, dp_shard=2
    ),
    "shares of the vocabulary": small(MODEL, VOCABULARY, sharding="zero1", pp=2, dp_shard=2),
    "experts in another order": small(MODEL, sharding="zero1", dp_shard=4, ep=2, expert_order=ORDER),
    "layers of two layouts": ranged(RANGED),
}
"""Plans of one model of experts."""
TIED_PLANS = {
    "one rank": small(TIED),
    "a table of two stages, in shards": small(TIED, sharding="zero1", pp=2, dp_shard=2),
    "a table in two layouts": ranged(TWO_LAYOUTS),
    "uneven shares of the batch and of the states": ranged(UNEVEN),
    "shares of a tied table": small(TIED, VOCABULARY, "zero1", pp=2, dp_shard=2),
    "padded vocabulary": small(TIED, tp=2),
}
"""Plans of a model whose embedding is its head."""


def adapted(adapter, **choices):
    """A plan that trains adapters."""
    return _proven(adapter=adapter, **choices)


def islands(*entries, **choices):
    """A plan whose replicas exchange by these entries."""
    return _proven(synchronise=tuple(map(Synchronisation.model_validate, entries)), **choices)


def _proven(**choices):
    replicas = choices.get("dp_replicate", 1) * choices.get("dp_shard", 1)
    plan = Proven("llama", layers=4, micro_batches=BATCH // replicas, **choices)
    program, model = plan.lowered()
    return Small(model, program, BATCH)


ADAPTER_PLANS = {
    "one rank": adapted(ADAPTER),
    "tp": adapted(ADAPTER, tp=2, sequence_parallel=True),
    "stages of shards": adapted(ADAPTER, pp=2, dp_shard=2, sharding="zero1"),
    "zero3": adapted(ADAPTER, dp_shard=2, sharding="zero3"),
    "replicas": adapted(ADAPTER, dp_replicate=2),
}
"""Plans that train adapters of one model."""
REPLICA_PAIR_PLANS = {
    "replicas": adapted(OWN, dp_replicate=2),
    "replicas along dp_shard": adapted(OWN, dp_shard=2),
    "tp": adapted(OWN, dp_replicate=2, tp=2, sequence_parallel=True),
    "stages": adapted(OWN, dp_shard=2, pp=2),
    "cp": adapted(OWN, dp_replicate=2, cp=2),
}
"""Plans whose two data-parallel ranks train pairs of their own (hd-pissa), which no sharding cuts."""
MEETING = (parameters(every=3), {"state": "optimizer", "over": "dp_replicate", "every": 3})
"""Entries after whose third step islands have equal parameters and moments."""
APART = (parameters(every=2),)
"""An entry after whose third step islands differ."""
ISLAND_PLANS = {
    "islands that meet": islands(*MEETING, dp_replicate=2),
    "islands that meet, of tp": islands(*MEETING, dp_replicate=2, tp=2, sequence_parallel=True),
    "islands that meet, of shards": islands(*MEETING, dp_replicate=2, dp_shard=2, sharding="zero1"),
    "islands that meet, of stages": islands(*MEETING, dp_replicate=2, pp=2),
    "islands apart": islands(*APART, dp_replicate=2),
    "islands apart, of tp": islands(*APART, dp_replicate=2, tp=2, sequence_parallel=True),
    "islands apart, of shards": islands(*APART, dp_replicate=2, dp_shard=2, sharding="zero1"),
    "no islands": islands(),
    "no islands, zero3": islands(dp_shard=2, sharding="zero3"),
}
"""Plans with and without entries of ``synchronise``."""
FAMILIES = {
    "experts": PLANS,
    "tied tables": TIED_PLANS,
    "adapters": ADAPTER_PLANS,
    "pairs of each replica": REPLICA_PAIR_PLANS,
    "islands": ISLAND_PLANS,
}
PAIRS = [
    (family, source, target)
    for family, plans in FAMILIES.items()
    for source in plans
    for target in plans
    if source != target
]
"""All ordered pairs of plans of the same model."""
