"""Small plans of models whose last layers predict further tokens: with all that cuts a step's work."""

from covering_plans import Proven


def further(model: str, count: int, tied: bool = False, **choices) -> Proven:
    """A plan of a model with so many layers that predict further tokens."""
    asked = (("num_nextn_predict_layers", count), ("train_nextn_predict_layers", True))
    return Proven(model, sizes=(*asked, ("tie_word_embeddings", tied)), **choices)


PIPE = {"pp": 2, "micro_batches": 4}
SHARDS = {"dp_shard": 2, "sharding": "zero1"}
TENSORS = {"tp": 2, "sequence_parallel": True}
EVERY_SET = ("moe", "moe_act", "mla_up_proj", "core_attn", "layernorm", "mlp", "shared_experts")
FEW = (
    further("deepseek_v3", 2),
    further("glm4_moe", 2, **PIPE, schedule="zb-h1", dp_shard=2, sharding="zero2"),
    further("deepseek_v3", 2, cp=2, context="all-gather", documents=8, ep=2, **TENSORS),
    further("glm4_moe", 1, True, **SHARDS, **PIPE),
    further("deepseek_v3", 1, pp=2, cp=2, context="ulysses", documents=8),
    further("deepseek_v3", 2, recompute="full", **PIPE, **SHARDS, schedule="zb-h1"),
    further("deepseek_v3", 1, layers=4, **PIPE, dp_shard=2, sharding="zero3", schedule="v-half"),
)
"""Every axis of a plan, both families, one and several of them, tied tables and packed documents."""
MORE = (
    further("deepseek_v3", 2, dp_replicate=2),
    further("deepseek_v3", 1, dp_shard=2, sharding="zero3", gather="per-micro-batch"),
    further("deepseek_v3", 2, dp_shard=2, sharding="zero3", gather="per-step", **PIPE),
    further("glm4_moe", 1, layers=4, **PIPE, **SHARDS, schedule="zb-v"),
    further("deepseek_v3", 1, layers=4, **PIPE, **SHARDS, schedule="interleaved-1f1b", ep=2),
    further("glm4_moe", 2, cp=4, context="ring", ep=2),
    further("glm4_moe", 1, **TENSORS, ep=2, recompute=("moe", "layernorm")),
    further("deepseek_v3", 1, **TENSORS, etp=2, recompute=EVERY_SET),
    further("deepseek_v3", 1, layers=4, **PIPE, schedule="dualpipev"),
    further("deepseek_v3", 1, **PIPE, schedule="zb-h2", step_validation="after"),
    further("glm4_moe", 2, True, **SHARDS),
    further("deepseek_v3", 1, layers=4, pp=4, offload="all", micro_batches=8),
    further(
        "deepseek_v3",
        1,
        layers=4,
        pp=2,
        dp_shard=2,
        sharding="zero3",
        gather="per-unit",
        schedule="zeropp",
        micro_batches=6,
    ),
    further("deepseek_v3", 1, pp=2, stages=(3, 1)),
)
"""What else meets them: moments of gathering, other schedules, sets that run again, the host, steps taken back."""
