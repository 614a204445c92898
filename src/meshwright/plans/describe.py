"""Describe a plan, with its defaults filled in, as plain data for ``describe``."""

from collections.abc import Mapping
from math import prod

from meshwright.errors import PlanError
from meshwright.model.adapter_targets import chosen_targets
from meshwright.model.architecture import Architecture
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.files.strict_types import Strict
from meshwright.plans.forms.conversion import MAIN, expand
from meshwright.plans.forms.dtypes import Dtypes
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import AdapterSpec, OptimizerSpec, ShortPlan
from meshwright.plans.layers.layer_assignment import layer_rules, stage_layers, stage_problems
from meshwright.stack.stack import Stack
from meshwright.stack.state_types import FORWARD_ONLY_MASTER, half_of, types_of
from meshwright.workload.optimizer_choice import ADAMW


def describe_plan(
    plan: ShortPlan | LongPlan,
    architecture: Architecture,
    long: bool = False,
    read: ShortPlan | LongPlan | None = None,
    stack: Stack | None = None,
) -> dict[str, object]:
    """Return the plan with every default, the keys that were given, and what follows from them.

    The plan comes in the form that it has, or in the long one for ``long``; ``given`` and ``defaults`` list
    dotted paths in the form that was read; ``read`` is the plan before anything was filled in. The long form of a plan
    for a ``stack`` has the element types of all states. Raises PlanError where layers or stages do not cover the model.
    """
    full = plan if isinstance(plan, LongPlan) else expand(plan, architecture)
    resolved = plan if isinstance(plan, LongPlan) else _resolved(plan, full)
    given = given_paths(read or plan, "")
    return {
        "form": "long" if long or isinstance(plan, LongPlan) else "short",
        "plan": _with_types(full, stack, architecture).to_data() if long else resolved.to_data(),
        "given": given,
        "defaults": [path for path in value_paths(resolved.to_data(), "") if path not in given],
        "devices": _devices(full),
        "stages": _stages(full, architecture.layers),
    }


def _with_types(plan: LongPlan, stack: Stack | None, architecture: Architecture) -> LongPlan:
    if stack is None:
        return plan
    types = types_of(stack, plan.workload.precision, plan.written_types).to_data()
    if plan.workload.optimizer_in_full.forward_only:
        types = {"gather": types["gather"], "master": plan.written_types.get("master", FORWARD_ONLY_MASTER)}
    changed = {"optimizer": _with_options(plan, stack), "adapter": _with_defaults(plan, architecture)}
    workload = plan.workload.model_copy(update=changed)
    return plan.model_copy(update={"dtypes": Dtypes.model_validate(types), "workload": workload})


def _with_options(plan: LongPlan, stack: Stack) -> str | OptimizerSpec:
    """Return the optimizer with all of its options; the default one by its name."""
    optimizer = plan.workload.optimizer_in_full
    if optimizer == ADAMW or any(True for _ in optimizer.problems()):
        return plan.workload.optimizer
    return OptimizerSpec.model_validate({"name": optimizer.name, **optimizer.options_of(stack.muon_scale)})


def _with_defaults(plan: LongPlan, architecture: Architecture) -> AdapterSpec | None:
    """Return the adapters with the rank as alpha, the model's targets and the type of the base."""
    adapter = plan.workload.adapter
    if adapter is None:
        return None
    usual = {
        "alpha": float(adapter.rank),
        "targets": chosen_targets(build_graph(architecture), None),
        "base": half_of(plan.workload.precision),
    }
    return adapter.model_copy(update={key: v for key, v in usual.items() if getattr(adapter, key) is None})


def _resolved(short: ShortPlan, full: LongPlan) -> ShortPlan:
    """Return the short plan with sequence_parallel and gather filled in."""
    sequence_parallel = full.layouts[MAIN].sequence_parallel
    layout = short.layout.model_copy(update={"sequence_parallel": sequence_parallel})
    return short.model_copy(update={"layout": layout, "gather": full.gather})


def given_paths(value: object, path: str) -> list[str]:
    """Return the dotted paths of the values that were set and not left to a default."""
    if isinstance(value, Strict):
        names = {name: field.alias or name for name, field in type(value).model_fields.items()}
        inner = {names[name]: getattr(value, name) for name in names if name in value.model_fields_set}
    elif isinstance(value, Mapping):
        inner = dict(value)
    else:
        return [] if value is None else [path]
    return [
        found for key, item in inner.items() for found in given_paths(item, f"{path}.{key}" if path else key)
    ]


def value_paths(value: object, path: str) -> list[str]:
    """Return the dotted paths of all values of nested mappings."""
    if not isinstance(value, Mapping):
        return [path]
    return [
        found for key, item in value.items() for found in value_paths(item, f"{path}.{key}" if path else key)
    ]


def _devices(plan: LongPlan) -> int:
    layout = next(iter(plan.layouts.values()))
    return plan.pipeline.ranks * prod(layout.grid.model_dump().values())


def _stages(plan: LongPlan, layers: int) -> list[dict[str, object]]:
    problems = [*layer_rules(plan, layers).problems, *stage_problems(plan.pipeline, layers)]
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise PlanError(errors)
    stages = zip(plan.pipeline.placement, stage_layers(plan.pipeline, layers), strict=True)
    return [
        {
            "stage": index,
            "pipeline_rank": rank,
            "first_layer": stage.first if stage.count else None,
            "layers": stage.count,
            "embed": stage.embed,
            "head": stage.head,
        }
        for index, (rank, stage) in enumerate(stages)
    ]
