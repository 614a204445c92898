"""Plans of models with Mamba-2 layers: whatever cuts their heads, layers and states."""

from dataclasses import replace

from covering_plans import Proven

HYBRID = Proven("granitemoehybrid", layers=3)
TENSORS = {"tp": 2, "sequence_parallel": True}

QUICK = (
    HYBRID,
    replace(HYBRID, tp=2),
    replace(HYBRID, dp_shard=2, sharding="zero3", gather="per-layer", **TENSORS),
    replace(HYBRID, pp=3, schedule="zb-h1", micro_batches=4),
    replace(HYBRID, model="granitemoehybrid rotated", recompute="full", micro_batch=2, **TENSORS),
)
FULL = (
    replace(HYBRID, dp_replicate=2, recompute=("layernorm", "mlp"), **TENSORS),
    replace(HYBRID, dp_shard=2, sharding="zero2", recompute=("core_attn", "layernorm")),
    replace(HYBRID, dp_replicate=2, dp_shard=2, sharding="zero1", micro_batch=2),
    replace(HYBRID, tp=4, sequence_parallel=True, dp_shard=2, sharding="zero3", gather="per-step"),
    replace(HYBRID, pp=2, layers=4, schedule="dualpipe", micro_batches=4, **TENSORS),
    replace(HYBRID, pp=2, layers=4, schedule="v-half", micro_batches=4, offload=0.5),
    replace(HYBRID, pp=2, layers=4, schedule="interleaved-1f1b", micro_batches=4, recompute="full"),
    replace(HYBRID, dp_shard=2, sharding="zero1", optimizer="muon", **TENSORS),
    replace(HYBRID, dp_replicate=2, adapter=(("rank", 2),), **TENSORS),
    replace(HYBRID, dp_replicate=2, optimizer="zo-sgd"),
    replace(HYBRID, model="granitemoehybrid rotated", pp=3, tp=2, micro_batches=3),
)
