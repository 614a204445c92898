"""Plans whose activations are on the host between their passes."""

from dataclasses import replace

from covering_plans import Proven

OFFLOADED = Proven("llama", pp=4, offload="all", micro_batches=8, layers=5)
"""Activations of all layers on the host."""
OFFLOADS = (
    OFFLOADED,
    replace(
        OFFLOADED,
        model="qwen3",
        schedule="zb-h1",
        dp_shard=2,
        sharding="zero1",
        recompute="full",
        offload=0.5,
    ),
    replace(OFFLOADED, model="gpt2", schedule="zb-h2", recompute="selective", ahead=2),
    replace(
        OFFLOADED,
        model="gemma2",
        pp=2,
        tp=2,
        sequence_parallel=True,
        schedule="interleaved-1f1b",
        recompute=("mlp",),
    ),
    replace(
        OFFLOADED,
        pp=2,
        dp_shard=2,
        sharding="zero3",
        gather="per-layer",
        schedule="v-half",
        layers=6,
        offload=0.6,
    ),
    replace(
        OFFLOADED,
        model="bloom",
        pp=2,
        dp_shard=2,
        sharding="zero3",
        gather="per-micro-batch",
        schedule="zb-v",
    ),
    replace(OFFLOADED, model="granite", sharding="zero2", dp_shard=2, gather=None, schedule="gpipe", pp=1),
    replace(
        OFFLOADED,
        pp=2,
        dp_shard=2,
        sharding="zero3",
        gather="per-unit",
        schedule="zeropp",
        stages=(0, 2, 2, 1),
    ),
    replace(OFFLOADED, model="qwen3", pp=2, schedule="dualpipe", layers=4),
    replace(OFFLOADED, model="gemma2", vocabulary="vocab-2", layers=6),
    replace(OFFLOADED, layers=6, recomputes=("full", "none", ("mlp",), "selective", "full", "none")),
)
"""Compositions of that with everything that keeps, drops or moves activations."""
