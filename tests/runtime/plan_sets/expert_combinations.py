"""Experts on a mesh of their own, with everything that changes what passes compute or exchange, three by three.

The models take turns, so that each family is in many plans. A plan has at most eight ranks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, cycle, product

from covering_plans import ORDERS, Proven
from tiny_models import tiny

from greedy_cover import greedy_cover

MOST_RANKS = 8
FAMILIES = (
    "mixtral",
    "qwen3_moe",
    "qwen2_moe",
    "deepseek_v3",
    "gpt_oss",
    "deepseek_v2",
    "glm4_moe",
    "dots1",
    "deepseek_v3 direct",
    "minimax",
)
LEVELS = {
    "experts": ("one rank", "ep", "etp", "ep and etp"),
    "states": ("none", "replicated", "zero1", "zero2", "zero3", "hybrid"),
    "tensors": ("whole", "tp and sp"),
    "pipeline": ("none", "1f1b", "zb-h1", "interleaved-1f1b", "zb-v", "dualpipe"),
    "recompute": ("none", "full", "experts", "experts' activations", "all sets"),
}
"""The first level of each is the plain one."""
SETS = {
    "none": "none",
    "full": "full",
    "experts": ("moe", "layernorm"),
    "experts' activations": ("moe_act", "mla_up_proj"),
    "all sets": ("moe", "shared_experts", "layernorm", "core_attn", "mla_up_proj", "mlp"),
}
MESHES = {"one rank": (1, 1), "ep": (2, 1), "etp": (1, 2), "ep and etp": (2, 2)}
STATES = {
    "none": {},
    "replicated": {"dp_replicate": 2},
    "zero1": {"dp_shard": 2, "sharding": "zero1"},
    "zero2": {"dp_shard": 2, "sharding": "zero2"},
    "zero3": {"dp_shard": 2, "sharding": "zero3", "gather": "per-layer"},
    "hybrid": {"dp_shard": 2, "dp_replicate": 2, "sharding": "zero3", "gather": "per-layer"},
}
Levels = Mapping[str, str]


def crossed(model: str, levels: Levels) -> Proven:
    """The plan."""
    ep, etp = MESHES[levels["experts"]]
    piped = levels["pipeline"] != "none"
    plan = Proven(
        model,
        pp=2 if piped else 1,
        ep=ep,
        etp=etp,
        recompute=_sets_of(model, SETS[levels["recompute"]]),
        micro_batches=4 if piped else 2,
        layers=4,
        **STATES[levels["states"]],
    )
    if piped:
        plan = replace(plan, schedule=levels["pipeline"])
    if levels["tensors"] == "tp and sp":
        plan = replace(plan, tp=2, sequence_parallel=True)
    return plan


def _sets_of(model: str, wanted: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Those of the sets that a model has operators of."""
    if isinstance(wanted, str):
        return wanted
    found = {name for block in tiny(model).blocks for op in block.operators for name in op.recompute}
    return tuple(name for name in wanted if name in found)


def possible(levels: Levels) -> bool:
    """Whether the experts' mesh fits on a stage, and all of it on so many ranks."""
    plan = crossed(FAMILIES[0], {**levels, "recompute": "none"})
    return plan.ranks <= MOST_RANKS and (plan.ranks // plan.pp) % (plan.ep * plan.etp) == 0


def covering() -> list[Proven]:
    """Plans, found greedily, in which every three levels of different factors meet where they can."""
    everything = [
        levels
        for chosen in product(*LEVELS.values())
        if possible(levels := dict(zip(LEVELS, chosen, strict=True)))
    ]
    chosen = greedy_cover([(set(combinations(levels.items(), 3)),) for levels in everything])
    return [crossed(model, everything[place]) for model, place in zip(cycle(FAMILIES), chosen, strict=False)]


def balanced() -> Iterator[Proven]:
    """Losses that balance experts, in either scope, and corrections that move, where a sequence or a layer is cut."""
    loss = (("aux_loss_alpha", 0.5), ("bias_update_speed", 0.05))
    pooled = (("output_router_logits", True), ("router_aux_loss_coef", 0.5))
    yield Proven("deepseek_v3", sizes=loss)
    yield Proven("deepseek_v3", tp=2, ep=2, sequence_parallel=True, sizes=loss, recompute="full")
    yield Proven(
        "deepseek_v2", dp_shard=2, sharding="zero1", micro_batch=2, sizes=(*loss[:1], ("seq_aux", False))
    )
    yield Proven("mixtral", pp=2, dp_replicate=2, ep=2, schedule="zb-h1", sizes=pooled)
    yield Proven("glm4_moe", pp=2, ep=2, dp_replicate=2, schedule="dualpipe", layers=4, sizes=loss[1:])


EIGHT = (("num_local_experts", 8),)
SPECIAL = (
    Proven("qwen2_moe", pp=4, offload="all", micro_batches=8, layers=4),
    Proven(
        "deepseek_v3",
        pp=2,
        dp_shard=2,
        ep=2,
        sharding="zero1",
        vocabulary="vocab-1",
        micro_batches=4,
        layers=4,
    ),
    Proven(
        "mixtral",
        pp=2,
        dp_shard=2,
        ep=2,
        sharding="zero1",
        schedule="zb-h1",
        step_validation="after",
        micro_batches=4,
    ),
    Proven(
        "qwen3_moe",
        pp=2,
        dp_shard=2,
        ep=2,
        sharding="zero3",
        gather="per-unit",
        schedule="zeropp",
        micro_batches=6,
        layers=4,
    ),
    Proven(
        "gpt_oss",
        dp_shard=4,
        tp=2,
        ep=4,
        etp=2,
        sharding="zero3",
        gather="per-micro-batch",
        sequence_parallel=True,
        sizes=EIGHT,
    ),
    Proven(
        "mixtral",
        dp_replicate=2,
        dp_shard=2,
        tp=2,
        ep=4,
        sharding="zero2",
        sequence_parallel=True,
        rank_order=ORDERS[1],
        sizes=EIGHT,
    ),
)
"""What else an expert may meet: the host's memory, a spread vocabulary, steps taken back, units, other rank orders."""


def folded() -> Iterator[Proven]:
    """Every family with experts over all ranks of data and tensor parallelism (Parallel Folding, arXiv 2504.14960)."""
    for model in FAMILIES:
        widths = {"num_local_experts": 8} if model in ("mixtral", "gpt_oss", "minimax") else {}
        widths = {"num_experts": 8} if model == "qwen2_moe" else widths
        yield Proven(
            model,
            dp_shard=4,
            tp=2,
            ep=8,
            sharding="zero1",
            sequence_parallel=True,
            layers=2,
            sizes=tuple(widths.items()),
        )
