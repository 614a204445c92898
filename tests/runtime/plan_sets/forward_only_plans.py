"""Plans without backward passes, over every axis that cuts parameters or sequences."""

from covering_plans import Proven

BOTH = (("name", "zo-sgd"), ("epsilon", 1e-3))
SPLIT = (*BOTH, ("perturbations", "split"))
LAYERED = {"sharding": "zero3", "gather": "per-layer"}
PLANS = {
    "one device": Proven("llama", optimizer="zo-sgd"),
    "weight decay": Proven("gpt2", optimizer=(*BOTH, ("weight_decay", 0.3)), dp_replicate=2),
    "tp and replicas": Proven("llama", optimizer=BOTH, tp=2, dp_replicate=2, sequence_parallel=True),
    "stages of a tied table": Proven("qwen3", optimizer=BOTH, pp=2, tp=2, micro_batches=4, layers=4),
    "gpipe": Proven("llama", optimizer=BOTH, pp=3, schedule="gpipe", stages=(1, 2, 1), layers=4),
    "zero3": Proven("gpt2", optimizer=BOTH, dp_shard=3, **LAYERED),
    "zero3 in stages": Proven("gemma2", optimizer=BOTH, pp=2, dp_shard=2, micro_batch=2, **LAYERED),
    "context": Proven("llama", optimizer=BOTH, cp=2, dp_shard=2, **LAYERED),
    "experts": Proven("mixtral", optimizer=BOTH, tp=2, dp_replicate=2, ep=2, etp=2, sequence_parallel=True),
    "experts in another order": Proven(
        "mixtral",
        optimizer=BOTH,
        dp_shard=4,
        ep=2,
        layers=2,
        expert_order=((2, 0, 5, 1, 4, 3), (1, 3, 0, 2, 5, 4)),
        **LAYERED,
    ),
    "balanced experts": Proven(
        "qwen3_moe",
        optimizer=BOTH,
        dp_replicate=2,
        ep=2,
        sizes=(("router_aux_loss_coef", 0.3), ("output_router_logits", True)),
    ),
    "split": Proven("llama", optimizer=SPLIT, dp_replicate=2, tp=2),
    "split in stages": Proven("llama", optimizer=SPLIT, dp_replicate=4, pp=2, micro_batches=2),
    "split with zero3": Proven("qwen3", optimizer=SPLIT, dp_replicate=2, dp_shard=2, cp=2, **LAYERED),
    "split of experts": Proven("mixtral", optimizer=SPLIT, dp_replicate=4, ep=2, documents=9),
    "master copy": Proven("llama", optimizer=BOTH, dp_replicate=2, dtypes=(("master", "fp32"),)),
}
QUICK = (
    "stages of a tied table",
    "balanced experts",
)
"""Plans of every test run; the others are proven too."""
