"""A uniform plan in torchtitan 0.3.0's words: dotted options, and activation checkpointing as a subcommand.

Batch arithmetic: ``local_batch_size`` is per data-parallel rank and per accumulation step. Without a pipeline
one accumulation step is one micro-batch; with one, a single step of micro_batch·micro_batches sequences is
cut by ``pipeline_parallel_microbatch_size``. Stages are written out with ``module_fqns_per_model_part``. FSDP
shards over dp_shard·cp; ``fsdp_reshard_after_forward`` always = gather per layer; never = once per
micro-batch (zero2), or once per step under a pipeline, which keeps parameters until its last micro-batch. Experts
lie on a mesh (efsdp, ep) over dp_shard·cp·tp.
"""

from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.exporting.uniform_plan import UniformPlan
from meshwright.frameworks.option_names import Option
from meshwright.stack.stack_model import StackModel

LOOPED_SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved-1f1b": "Interleaved1F1B",
    "looped-bfs": "LoopedBFS",
}
MULTI_STAGE = ("interleaved-1f1b", "looped-bfs")
V_SCHEDULES = {"zb-v": "ZBVZeroBubble", "dualpipev": "DualPipeV"}


def plan_options(plan: UniformPlan, model: StackModel) -> list[Option]:
    """The options that make the plan, subcommand left out. For a plan that torchtitan can say."""
    work, accumulated = plan.long.workload, 1 if plan.pp == 1 else plan.micro_batches
    return [
        ("--module", model.module),
        ("--config", model.config),
        *_degrees(plan),
        *_pipeline(plan),
        ("--training.seq_len", str(work.seq_len)),
        ("--training.local_batch_size", str(plan.micro_batch * accumulated)),
        ("--training.global_batch_size", str(work.global_batch)),
        ("--training.mixed_precision_param", "bfloat16"),
        *_graphs(plan),
    ]


def checkpointing(plan: UniformPlan) -> str:
    """The subcommand for recomputation; it comes after all options."""
    return f"activation-checkpoint:{plan.recompute}"


def plan_refusals(plan: UniformPlan) -> list[Refusal]:
    """What torchtitan means in its own way without a change to the plan."""
    refusals = []
    if plan.sharding == "zero2":
        why = "parameters rest sharded too and stay gathered from forward to backward (reshard never)"
        refusals.append(Refusal("sharding", "zero2", why))
    if plan.long.workload.task == "sft":
        why = "the configuration reads pre-training data; a chat data loader is set in Python"
        refusals.append(Refusal("workload.task", "sft", why))
    return refusals


def _degrees(plan: UniformPlan) -> list[Option]:
    names = {
        "data_parallel_replicate_degree": plan.dp_replicate if plan.sharding != "none" else plan.dp,
        "data_parallel_shard_degree": plan.dp_shard if plan.sharding != "none" else 1,
        "context_parallel_degree": plan.cp,
        "tensor_parallel_degree": plan.tp,
        "pipeline_parallel_degree": plan.pp,
        "expert_parallel_degree": plan.experts.ep if plan.experts else 1,
    }
    options: list[Option] = [(f"--parallelism.{name}", str(degree)) for name, degree in names.items()]
    if plan.tp > 1 and not plan.sequence_parallel:
        options.append(("--parallelism.no_enable_sequence_parallel",))
    if plan.sharding != "none":
        whole = plan.sharding == "zero3" and plan.gather == "per-layer"
        policy = "always" if whole else "never"
        options.append(("--parallelism.fsdp_reshard_after_forward", policy))
    return options


def _pipeline(plan: UniformPlan) -> list[Option]:
    if plan.pp == 1:
        return []
    return [
        ("--parallelism.pipeline_parallel_schedule", (LOOPED_SCHEDULES | V_SCHEDULES)[plan.schedule]),
        ("--parallelism.module_fqns_per_model_part", *stage_modules(plan)),
        ("--parallelism.pipeline_parallel_microbatch_size", str(plan.micro_batch)),
    ]


def stage_modules(plan: UniformPlan) -> tuple[str, ...]:
    """Names of the modules of every stage, with commas between: ``tok_embeddings,layers.0,layers.1``."""
    stages = []
    for stage in plan.stages:
        names = ["tok_embeddings"] if stage.embed else []
        names += [f"layers.{layer}" for layer in range(stage.first, stage.last)]
        stages.append(",".join([*names, *(["norm", "lm_head"] if stage.head else [])]))
    return tuple(stages)


def _graphs(plan: UniformPlan) -> list[Option]:
    """CUDA graphs capture neither pipelines nor token dispatch with host synchronisation."""
    captured = plan.pp == 1 and (plan.experts is None or plan.experts.ep == 1)
    return [] if captured else [("--training.disable_cuda_graphs",)]
