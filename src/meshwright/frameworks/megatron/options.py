"""The options of ``pretrain_gpt.py`` (megatron-core 0.19.2) that a plan or its model has a word for.

Data parallelism is not an option: it is what world / (tp·pp·cp) leaves. The distributed optimizer shards over
dp·cp / instances neighbouring ranks; with ``--num-distributed-optimizer-instances`` = dp_replicate that is
dp_shard·cp. Gradients and parameters are sharded by Megatron-FSDP, which gathers parameters where a layer
uses them.

Values that depend on several facts are written by functions of ``exporting/plan_to_options.py``, such as those of
``--recompute-modules``; ``importing/options_to_plan.py`` reads them back.
"""

from functools import partial

from meshwright.frameworks.megatron.exporting import plan_to_options as plan
from meshwright.frameworks.megatron.exporting.optimizer_options import NAMES, OPTIMIZERS, optimizer_value
from meshwright.frameworks.option_table import (
    FLAG,
    NUMBER,
    OFF_FLAG,
    ComputedRow,
    Facts,
    OptionRow,
    OptionTable,
    Row,
    constant,
    never,
    one_of,
)

LAYERS, HIDDEN, WIDTH, HEADS = "--num-layers", "--hidden-size", "--ffn-hidden-size", "--num-attention-heads"
GROUPED, GROUPS = "--group-query-attention", "--num-query-groups"
LATENT, EXPERTS, DISPATCHER = "--multi-latent-attention", "--num-experts", "--moe-token-dispatcher-type"
NORM, POSITIONS = "--normalization", "--position-embedding-type"
SWIGLU, UNTIED = "--swiglu", "--untie-embeddings-and-output-weights"
MTP_LAYERS, MTP_WEIGHT = "--mtp-num-layers", "--mtp-loss-scaling-factor"
EP, ETP = "--expert-model-parallel-size", "--expert-tensor-parallel-size"
SEQUENCE_PARALLEL, PP_BEFORE_DP = "--sequence-parallel", "--use-tp-pp-dp-mapping"
CONTEXT, CONTEXT_SIZES = "--cp-comm-type", "--hierarchical-context-parallel-sizes"
EXCHANGE_OVERLAP = "--overlap-moe-expert-parallel-comm"
CAPACITY, DROP, PAD = (
    *("--moe-expert-capacity-factor", "--moe-token-drop-policy"),
    "--moe-pad-expert-input-to-capacity",
)
DISTRIBUTED, INSTANCES = "--use-distributed-optimizer", "--num-distributed-optimizer-instances"
FSDP, STRATEGY = "--use-megatron-fsdp", "--data-parallel-sharding-strategy"
REDUCE_BF16, ACCUMULATE_FP32 = "--grad-reduce-in-bf16", "--accumulate-allreduce-grads-in-fp32"
OPTIMIZER_HOME, OPTIMIZER_SHARE = "--optimizer-cpu-offload", "--optimizer-offload-fraction"
NARROW, MAIN_GRADIENTS, GATHER_FP8 = (
    "--use-precision-aware-optimizer",
    "--main-grads-dtype",
    "--fp8-param-gather",
)
NARROW_STATES = {
    "--main-params-dtype": "dtypes.master",
    "--exp-avg-dtype": "dtypes.first_moment",
    "--exp-avg-sq-dtype": "dtypes.second_moment",
}
"""Types of the optimizer's states, which Megatron reads where the optimizer knows them."""
GRADIENT_OVERLAP, GATHER_OVERLAP = "--overlap-grad-reduce", "--overlap-param-gather"
LAYOUT, CHUNKS = "--pipeline-model-parallel-layout", "--num-virtual-stages-per-pipeline-rank"
GRANULARITY, METHOD = "--recompute-granularity", "--recompute-method"
RECOMPUTED_LAYERS, MODULES = "--recompute-num-layers", "--recompute-modules"
FP16, BF16, FP8, FP8_RECIPE, FP4 = "--fp16", "--bf16", "--fp8-format", "--fp8-recipe", "--fp4-format"
OPTIMIZER, ATTENTION = "--optimizer", "--attention-backend"
OPTIMIZER_OPTIONS = {f"--{name.replace('_', '-')}": name for name in NAMES}
LAYERS_OF = "--transformer-impl"
PP, ENDS = (
    "--pipeline-model-parallel-size",
    ("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"),
)
CHUNK_LAYERS, VOCAB = "--num-layers-per-virtual-pipeline-stage", "--vocab-size"


def _grouped(facts: Facts) -> bool:
    return facts.get("model.kv_heads", facts["model.heads"]) != facts["model.heads"]


def _has_experts(facts: Facts) -> bool:
    return "model.experts" in facts


SIZES = (
    OptionRow(LAYERS, "model.layers"),
    OptionRow(HIDDEN, "model.hidden"),
    OptionRow(WIDTH, "model.intermediate"),
    OptionRow(HEADS, "model.heads"),
    OptionRow("--kv-channels", "model.head_dim"),
    constant(GROUPED, True, _grouped),
    OptionRow(GROUPS, "model.kv_heads", when=_grouped),
)
LENGTH = (OptionRow("--max-position-embeddings", "shape.positions"),)
NORMS = (OptionRow(NORM, "shape.rmsnorm", one_of({True: "RMSNorm", False: "LayerNorm"}), default=False),)
TIED = (OptionRow(UNTIED, "shape.tied", OFF_FLAG, default=True),)
EXPERT_SIZES = (
    OptionRow(EXPERTS, "model.experts"),
    OptionRow("--moe-router-topk", "model.experts_per_token"),
    OptionRow("--moe-ffn-hidden-size", "model.expert_intermediate"),
    constant("--moe-grouped-gemm", True, _has_experts),
    constant(DISPATCHER, "alltoall", _has_experts),
)
FURTHER_TOKENS = (
    ComputedRow(MTP_LAYERS, lambda facts: facts.get("next_tokens.layers")),
    ComputedRow(MTP_WEIGHT, lambda facts: facts.get("next_tokens.weight")),
)
PLAN: tuple[Row, ...] = (
    OptionRow("--tensor-model-parallel-size", "layout.tp"),
    OptionRow(PP, "layout.pp"),
    OptionRow("--context-parallel-size", "layout.cp"),
    OptionRow(EP, "layout.ep"),
    OptionRow(ETP, "layout.etp"),
    OptionRow(SEQUENCE_PARALLEL, "layout.sequence_parallel", FLAG, default=False),
    ComputedRow(CONTEXT, plan.context_kind),
    ComputedRow(CONTEXT_SIZES, plan.context_sizes),
    ComputedRow(PP_BEFORE_DP, plan.pp_before_dp),
    OptionRow(EXCHANGE_OVERLAP, "stack.overlap_expert_exchange", FLAG, when=plan.overlaps_exchange),
    ComputedRow(CAPACITY, lambda facts: plan.capacity(facts, "factor")),
    ComputedRow(DROP, lambda facts: plan.capacity(facts, "drop")),
    ComputedRow(PAD, lambda facts: plan.capacity(facts, "pad") or False),
    ComputedRow(DISTRIBUTED, plan.is_sharded),
    ComputedRow(FSDP, plan.is_fsdp),
    ComputedRow(STRATEGY, lambda facts: plan.STRATEGIES.get(facts["sharding"])),
    constant("--ckpt-format", "fsdp_dtensor", plan.is_fsdp),
    constant("--no-gradient-accumulation-fusion", True, plan.is_fsdp),
    ComputedRow("--init-model-with-meta-device", lambda facts: facts["sharding"] == "zero3"),
    OptionRow(INSTANCES, "layout.dp_replicate", when=plan.has_instances),
    OptionRow(GRADIENT_OVERLAP, "stack.overlap_gradient_reduction", FLAG, False, plan.reduces_gradients),
    OptionRow(GATHER_OVERLAP, "stack.overlap_parameter_gather", FLAG, False, plan.gathers_parameters),
    ComputedRow(LAYOUT, plan.layout_text),
    OptionRow(CHUNKS, "pipeline.virtual_stages", when=plan.has_even_chunks),
    ComputedRow("--no-overlap-p2p-communication", plan.sends_in_turn),
    ComputedRow(GRANULARITY, lambda facts: plan.recompute(facts, "granularity")),
    ComputedRow(METHOD, lambda facts: plan.recompute(facts, "method")),
    ComputedRow(RECOMPUTED_LAYERS, lambda facts: plan.recompute(facts, "layers")),
    ComputedRow(MODULES, lambda facts: plan.recompute(facts, "modules")),
    OptionRow("--micro-batch-size", "pipeline.micro_batch"),
    OptionRow("--global-batch-size", "workload.global_batch"),
    OptionRow("--seq-length", "workload.seq_len"),
    ComputedRow(FP16, lambda facts: facts["workload.precision"] == "fp16"),
    ComputedRow(BF16, lambda facts: facts["workload.precision"] != "fp16"),
    ComputedRow(FP8, lambda facts: plan.low_precision(facts)["fp8"]),
    ComputedRow(FP8_RECIPE, lambda facts: plan.low_precision(facts)["fp8_recipe"]),
    ComputedRow(FP4, lambda facts: plan.low_precision(facts)["fp4"]),
    OptionRow(OPTIMIZER, "workload.optimizer", one_of(OPTIMIZERS), default="adamw"),
    *(ComputedRow(option, partial(optimizer_value, name)) for option, name in OPTIMIZER_OPTIONS.items()),
    ComputedRow(REDUCE_BF16, lambda facts: facts["dtypes.gradient"] == "bf16"),
    ComputedRow(ACCUMULATE_FP32, plan.accumulates_fp16_in_fp32),
    ComputedRow(GATHER_FP8, lambda facts: facts["dtypes.gather"] == "fp8"),
    ComputedRow(NARROW, lambda facts: facts["dtypes.narrow"] or facts["offload.optimizer"] > 0),
    ComputedRow(OPTIMIZER_HOME, lambda facts: facts["offload.optimizer"] > 0),
    ComputedRow(OPTIMIZER_SHARE, plan.part_on_host),
    ComputedRow(MAIN_GRADIENTS, plan.narrow_gradients),
    *(ComputedRow(option, partial(plan.narrow_state, path)) for option, path in NARROW_STATES.items()),
    ComputedRow(
        ATTENTION, lambda facts: "auto" if facts["stack.attention"].startswith("flash") else "unfused"
    ),
    ComputedRow("--make-vocab-size-divisible-by", lambda facts: facts["stack.vocab_multiple"]),
)
READ_ONLY = (
    OptionRow(VOCAB, "model.vocab", when=never),
    OptionRow(CHUNK_LAYERS, "layers_per_stage", when=never),
    OptionRow(ENDS[0], "first_layers", when=never),
    OptionRow(ENDS[1], "last_layers", when=never),
)
TABLE = OptionTable(
    "megatron-core",
    "0.19.2",
    (*SIZES, *LENGTH, *NORMS, *TIED, *EXPERT_SIZES, *FURTHER_TOKENS, *PLAN, *READ_ONLY),
    others="megatron-lm",
)
DEPENDENT = (
    *(SEQUENCE_PARALLEL, PP_BEFORE_DP, DISTRIBUTED, FSDP, STRATEGY, LAYOUT),
    *(
        GRANULARITY,
        MODULES,
        METHOD,
        RECOMPUTED_LAYERS,
        BF16,
        FP16,
        FP8,
        FP8_RECIPE,
        FP4,
        OPTIMIZER,
        *OPTIMIZER_OPTIONS,
    ),
    *(REDUCE_BF16, ACCUMULATE_FP32, GATHER_FP8, NARROW, MAIN_GRADIENTS, *NARROW_STATES),
    *(GRADIENT_OVERLAP, GATHER_OVERLAP, CAPACITY, DROP, PAD, MTP_LAYERS, MTP_WEIGHT, GROUPED),
)
"""Options of the plan that are no numbers."""
NUMBERS = tuple(row.option for row in TABLE.rows if isinstance(row, OptionRow) and row.codec is NUMBER)
