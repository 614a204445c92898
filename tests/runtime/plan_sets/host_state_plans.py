"""Plans with model states on the host, crossed with everything that cuts, exchanges or schedules states."""

from dataclasses import replace

from covering_plans import Proven

SHARES = {
    "optimizer": (("optimizer", 1.0),),
    "half the optimizer": (("optimizer", 0.5),),
    "everything": (("optimizer", 1.0), ("parameters", 1.0)),
    "unequal shares": (("optimizer", 0.3), ("parameters", 0.7)),
}
SHAPES = {
    "one rank": Proven("llama"),
    "tied on one rank": Proven("gemma2"),
    "replicas": Proven("llama", dp_replicate=2, micro_batches=3),
    "zero1 and tp": Proven("gpt2", dp_shard=2, tp=2, sharding="zero1"),
    "zero2 and cp": Proven("llama", dp_shard=2, cp=2, sharding="zero2"),
    "zero3 by layer": Proven("llama", dp_shard=2, dp_replicate=2, sharding="zero3", gather="per-layer"),
    "uneven zero3": Proven("gpt2", dp_shard=3, sharding="zero3", gather="per-layer", recompute="full"),
    "zero3 and a pipeline": Proven(
        "qwen3", pp=2, dp_shard=2, sharding="zero3", gather="per-layer", schedule="zb-h1", micro_batches=4
    ),
    "zero3 by step": Proven("llama", pp=2, dp_shard=2, sharding="zero3", gather="per-step"),
    "split backward": Proven("llama", pp=2, schedule="zb-h1", micro_batches=4, layers=4),
    "in a V": Proven("qwen3", pp=2, schedule="zb-v", micro_batches=4, layers=4),
    "tied table": Proven("qwen3", pp=2, tp=2, sequence_parallel=True, micro_batches=4, layers=4),
    "two chains": Proven("llama", pp=2, dp_replicate=2, schedule="dualpipe", micro_batches=4, layers=4),
    "units": Proven(
        "llama",
        pp=2,
        dp_shard=2,
        sharding="zero3",
        gather="per-unit",
        schedule="zeropp",
        micro_batches=6,
        layers=4,
    ),
    "experts": Proven("mixtral", dp_shard=2, tp=2, ep=2, sharding="zero1", sequence_parallel=True),
    "experts by layer": Proven("mixtral", dp_shard=2, ep=2, sharding="zero3", gather="per-layer"),
    "experts alone": Proven("mixtral", tp=2, etp=2, sequence_parallel=True),
    "activations too": Proven("llama", pp=4, offload="all", micro_batches=8, layers=4),
}
NOT_FETCHED = ("zero1 and tp", "zero2 and cp", "zero3 by step", "units", "experts")
"""Shapes whose parameters passes do not fetch."""
PLANS = {
    (shape, shares): replace(SHAPES[shape], on_host=SHARES[shares])
    for shape in SHAPES
    for shares in SHARES
    if not (len(SHARES[shares]) > 1 and shape in NOT_FETCHED)
}
"""All of them; ``QUICK`` are in every test run."""
QUICK = (
    ("zero3 and a pipeline", "everything"),
    ("tied table", "unequal shares"),
)
TYPES = {
    "half the optimizer": (("first_moment", "bf16"), ("second_moment", "bf16")),
    "everything": (("gather", "fp32"), ("first_moment", "fp8"), ("second_moment", "fp16")),
    "unequal shares": (("master", "fp16"),),
}
TYPED = {
    (shape, shares): replace(SHAPES[shape], on_host=SHARES[shares], dtypes=types)
    for shape in ("zero3 by layer", "tied table", "experts alone")
    for shares, types in TYPES.items()
}
"""Plans that write element types too."""
