"""Plans of models with an encoder: T5 and Qwen2.5-VL."""

from dataclasses import replace

from covering_plans import Proven

TWO_TEXTS = Proven("t5", dp_shard=2, tp=2, sequence_parallel=True, sharding="zero1", layers=2)
WITH_IMAGES = Proven("qwen2_5_vl", pp=2, tp=2, sequence_parallel=True, layers=4)
LAYER_BY_LAYER = {"sharding": "zero3", "gather": "per-layer"}
ENCODERS = (
    TWO_TEXTS,
    WITH_IMAGES,
    replace(TWO_TEXTS, **LAYER_BY_LAYER, recompute="full"),
    replace(TWO_TEXTS, model="t5 1.1", dp_replicate=2, tp=1, sequence_parallel=False, sharding="zero2"),
    replace(TWO_TEXTS, model="t5 1.1", sharding="zero3", gather="per-micro-batch", micro_batch=2),
    replace(TWO_TEXTS, model="t5 gated silu", recompute=("core_attn", "layernorm", "mlp")),
    replace(WITH_IMAGES, schedule="zb-v", micro_batches=4, recompute=("mlp",)),
    replace(WITH_IMAGES, schedule="dualpipe", micro_batches=4),
    replace(
        WITH_IMAGES, schedule="interleaved-1f1b", tp=1, dp_shard=2, sequence_parallel=False, **LAYER_BY_LAYER
    ),
    replace(
        WITH_IMAGES, pp=1, dp_shard=4, recompute="full", micro_batch=2, sharding="zero3", gather="per-step"
    ),
)
"""Plans that cover forms of sharding, recomputation, and schedules behind a vision tower."""
