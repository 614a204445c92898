"""Plans that write element types of states, crossed with everything that exchanges, cuts or copies states."""

from dataclasses import replace

from covering_plans import Proven

TYPES = {
    "16-bit gradients": (("gradient", "bf16"), ("reduce", "bf16")),
    "fp8 second moment": (("reduce", "bf16"), ("first_moment", "bf16"), ("second_moment", "fp8")),
    "no master copy": (("master", "none"), ("gradient", "bf16"), ("second_moment", "fp16")),
    "fp16 master copy": (
        ("master", "fp16"),
        ("gather", "fp32"),
        ("first_moment", "fp8"),
        ("second_moment", "fp16"),
    ),
}
SHAPES = {
    "one rank": Proven("llama"),
    "replicas": Proven("llama", dp_replicate=2, micro_batches=3),
    "zero1 and tp": Proven("gpt2", dp_shard=2, tp=2, sharding="zero1"),
    "zero2 and cp": Proven("llama", dp_shard=2, cp=2, sharding="zero2"),
    "zero3 by layer": Proven("llama", dp_shard=2, dp_replicate=2, sharding="zero3"),
    "uneven zero3": Proven("gpt2", dp_shard=3, sharding="zero3", gather="per-micro-batch"),
    "sequence parallel": Proven("llama", tp=2, sequence_parallel=True, dp_replicate=2),
    "tied table": Proven("qwen3", pp=2, dp_shard=2, sharding="zero1", layers=4),
    "split backward": Proven(
        "llama", pp=2, dp_shard=2, sharding="zero3", gather="per-step", schedule="zb-h1", micro_batches=4
    ),
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
    "two chains": Proven("llama", pp=2, dp_replicate=2, schedule="dualpipe", micro_batches=4, layers=4),
    "experts": Proven("mixtral", dp_shard=2, tp=2, ep=2, sharding="zero1", sequence_parallel=True),
    "spread vocabulary": Proven("llama", pp=2, dp_shard=2, sharding="zero1", vocabulary="vocab-1"),
}
PLANS = {(shape, types): replace(SHAPES[shape], dtypes=TYPES[types]) for shape in SHAPES for types in TYPES}
"""All of them; ``QUICK`` are in every test run."""
QUICK = (("zero3 by layer", "no master copy"),)
