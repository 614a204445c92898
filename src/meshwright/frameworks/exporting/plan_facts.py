"""The facts of a plan by path, which the rows of an option table write: the counterpart of ``plan_from_facts``.

The paths are those of imports (``frameworks/importing/imported_file.py``). All of data parallelism replicates where
nothing is sharded.
"""

from typing import Any

from meshwright.frameworks.exporting.uniform_plan import UniformPlan
from meshwright.frameworks.importing.imported_file import NEXT_LAYERS, NEXT_WEIGHT, RECOMPUTED_FIRST, Stage
from meshwright.model.architecture import Architecture
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.stack.stack import Stack, file_fields
from meshwright.stack.state_types import is_narrow, types_of
from meshwright.workload.optimizer_choice import Optimizer

STATED = ("seq_len", "global_batch", "precision", "task")


def plan_facts(plan: UniformPlan, arch: Architecture, stack: Stack) -> dict[str, Any]:
    """Return every fact that files of frameworks have words for."""
    work, sharded = plan.long.workload, plan.sharding != "none"
    capacity = workload_of(plan.long).capacity
    return {
        "devices": plan.devices,
        "dp": plan.dp,
        "accumulation": plan.micro_batches,
        **{f"layout.{axis}": getattr(plan, axis) for axis in ("pp", "cp", "tp")},
        "layout.dp_replicate": plan.dp_replicate if sharded else plan.dp,
        "layout.dp_shard": plan.dp_shard if sharded else 1,
        **({"layout.ep": plan.experts.ep, "layout.etp": plan.experts.etp} if plan.experts else {}),
        "layout.sequence_parallel": plan.sequence_parallel,
        "layout.rank_order": plan.order,
        "layout.context": next(iter(plan.long.layouts.values())).context_in_full,
        "sharding": plan.sharding,
        "gather": plan.long.gather,
        "recompute": plan.recompute,
        **({} if plan.recomputed_first is None else {RECOMPUTED_FIRST: plan.recomputed_first}),
        "pipeline.schedule": plan.schedule,
        "pipeline.micro_batch": plan.micro_batch,
        "pipeline.virtual_stages": plan.virtual_stages,
        "stages": stages_of(plan),
        **{f"workload.{name}": getattr(work, name) for name in STATED},
        "workload.optimizer": work.optimizer_in_full.name,
        **_optimizer_options(work.optimizer_in_full, stack),
        "workload.fp8_recipe": stack.recipe_of(workload_of(plan.long)),
        **({} if capacity is None else {"workload.capacity": capacity}),
        **_state_types(plan, stack),
        "offload.optimizer": plan.long.host_shares.optimizer,
        "offload.parameters": plan.long.host_shares.parameters,
        **{f"model.{name}": size for name, size in model_sizes(arch).items()},
        "model.family": arch.family,
        "shape.rmsnorm": arch.norm == "rmsnorm",
        "shape.tied": arch.tied_embeddings,
        "shape.positions": max(arch.max_positions, work.seq_len),
        **next_tokens_of(arch),
        **{f"stack.{name}": getattr(stack, name) for name in _stack_fields(plan)},
    }


def _optimizer_options(optimizer: Optimizer, stack: Stack) -> dict[str, Any]:
    """Return the optimizer's options, and which of them the plan writes."""
    options = optimizer.options_of(stack.muon_scale)
    return {f"optimizer.{key}": value for key, value in options.items()} | {
        "optimizer.written": tuple(key for key, _ in optimizer.written)
    }


def _state_types(plan: UniformPlan, stack: Stack) -> dict[str, Any]:
    """Return the element types of states, whether the plan writes any, and whether the optimizer's are not as usual."""
    precision, written = plan.long.workload.precision, plan.long.written_types
    types = types_of(stack, precision, written)
    return {
        **{f"dtypes.{key}": value for key, value in types.to_data().items()},
        "dtypes.written": bool(written),
        "dtypes.narrow": is_narrow(stack, precision, types),
    }


def _stack_fields(plan: UniformPlan) -> list[str]:
    """Names of the stack's facts, without that of experts where the model has none."""
    names = [field.name for field in file_fields()]
    return names if plan.experts else [name for name in names if name != "overlap_expert_exchange"]


def stages_of(plan: UniformPlan) -> tuple[Stage, ...]:
    """Return the contents of every stage, layers for further tokens by themselves."""
    further = {stage: plan.next_tokens_of(stage) for stage in plan.stages}
    return tuple(Stage(s.embed, s.count - further[s], s.head, further[s]) for s in plan.stages)


def next_tokens_of(arch: Architecture) -> dict[str, Any]:
    """Return the number of layers for further tokens and the weight of their losses; nothing for a model without."""
    if not arch.next_token_layers:
        return {}
    return {NEXT_LAYERS: arch.next_token_layers, NEXT_WEIGHT: arch.next_token_weight}


def model_sizes(arch: Architecture) -> dict[str, int]:
    """Return the sizes of a model that files state, by name."""
    sizes = {
        name: getattr(arch, name)
        for name in ("hidden", "heads", "kv_heads", "head_dim", "vocab", "intermediate")
    } | {"layers": arch.main_layers}
    if arch.latent is not None:
        sizes = {name: size for name, size in sizes.items() if name not in ("kv_heads", "head_dim")}
    if arch.moe:
        moe = arch.moe
        sizes |= {
            "experts": moe.experts,
            "experts_per_token": moe.experts_per_token,
            "expert_intermediate": moe.intermediate,
        }
        if not arch.intermediate:
            sizes["intermediate"] = moe.intermediate
    return sizes
