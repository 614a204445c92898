"""Plans that train adapters, crossed with everything that cuts, moves or recomputes what they read and add to."""

from dataclasses import replace

from covering_plans import Proven

ADAPTER = (("rank", 4), ("alpha", 6.0))
INT8, NF4 = ((*ADAPTER, ("base", base)) for base in ("int8", "nf4"))
OWN = (("form", "hd-pissa"), ("rank", 2))
"""Pairs of each data-parallel rank."""
ATTENTION = (("rank", 3), ("targets", ("q", "v")))


def adapted(model="llama", adapter=ADAPTER, **choices):
    """A plan that trains adapters."""
    return Proven(model, adapter=adapter, **choices)


def blocks(model="llama", **choices):
    """A plan that trains adapters on NF4, with matrices that blocks of 64 divide."""
    sizes = (("hidden_size", 128), ("intermediate_size", 256), ("head_dim", 32))
    return adapted(model, NF4, sizes=sizes, **choices)


QUICK = {
    "tp": adapted(tp=2, sequence_parallel=True, recompute=("mlp",)),
    "zero3 by layer": adapted("qwen3", dp_shard=2, sharding="zero3"),
    "nf4": blocks(tp=2, dp_shard=2, sharding="zero3"),
}
"""Plans that are in every test run."""
PLANS = QUICK | {
    "experts": adapted("mixtral", dp_shard=2, ep=2, sharding="zero2"),
    "split backward": adapted(
        adapter=ATTENTION, pp=2, dp_shard=2, sharding="zero1", schedule="zb-h1", micro_batches=4, layers=4
    ),
    "one rank": adapted(),
    "replicas": adapted(dp_replicate=2, micro_batches=3),
    "tp without sequence parallelism": adapted("gemma2", tp=2),
    "row-parallel only": adapted(adapter=(("rank", 3), ("targets", ("down",))), tp=2, schedule="zb-h1"),
    "zero1": adapted("gpt2", dp_shard=3, sharding="zero1", recompute="selective"),
    "zero2 and cp": adapted(cp=2, dp_shard=2, sharding="zero2"),
    "zero3 uneven": adapted("gpt2", dp_shard=3, sharding="zero3"),
    "zero3 by micro-batch": adapted(dp_shard=2, sharding="zero3", gather="per-micro-batch", recompute="full"),
    "zero3 once a step": adapted("llama biases", dp_shard=2, tp=2, sharding="zero3", gather="per-step"),
    "tied tables apart": adapted("qwen3", pp=2, dp_shard=2, sharding="zero3", layers=4),
    "heads for positions": adapted(cp=2, context="ulysses"),
    "packed documents": adapted("phi3", cp=2, documents=8),
    "units": adapted(
        pp=2,
        dp_shard=2,
        sharding="zero3",
        gather="per-unit",
        schedule="zeropp",
        micro_batches=6,
        layers=4,
    ),
    "two chains": adapted(
        pp=2, dp_shard=2, sharding="zero3", gather="per-layer", schedule="dualpipe", micro_batches=4, layers=4
    ),
    "activations on the host": adapted(pp=4, schedule="v-half", offload="all", micro_batches=8, layers=8),
    "validated afterwards": adapted(
        pp=2, schedule="zb-h1", step_validation="after", micro_batches=4, layers=4, clip=8.58
    ),
    "experts over tp": adapted(
        "mixtral", tp=2, dp_shard=2, ep=2, sharding="zero3", sequence_parallel=True, recompute=("moe",)
    ),
    "etp": adapted("mixtral", ATTENTION, tp=2, ep=1, etp=2, sequence_parallel=True),
    "shared experts": adapted("qwen2_moe", dp_shard=2, ep=2, sharding="zero3", recompute="full"),
    "biases of experts": adapted("gpt_oss", dp_shard=2, ep=2),
    "latent attention": adapted("deepseek_v3", tp=2, ep=2, sequence_parallel=True, recompute="selective"),
    "half of a pair": adapted(
        "deepseek_v3", (("rank", 3), ("targets", ("kv_b",))), tp=2, sequence_parallel=True
    ),
    "linear attention": adapted("minimax", tp=2, sequence_parallel=True),
    "int8": adapted(adapter=INT8, tp=2, dp_shard=2, sharding="zero3", sequence_parallel=True),
    "nf4 experts": blocks("mixtral", dp_shard=2, ep=2, sharding="zero3"),
    "nf4 split backward": blocks(pp=2, schedule="zb-h1", recompute="full", layers=4),
    "muon": adapted(dp_shard=2, sharding="zero3", optimizer="muon"),
    "narrow gradients": replace(QUICK["tp"], dtypes=(("gradient", "bf16"), ("reduce", "bf16"))),
}
"""All of them."""
