"""Models that a stack trains: rows of its file (``models``), or rules on its one model class."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.model.load import load_model
from meshwright.model.operators.blocks import build_graph
from meshwright.model.operators.multi_token_prediction import without_next_tokens
from meshwright.plans.rules.stack_limits.limits import StackLimit, limit
from meshwright.plans.rules.stack_limits.megatron_models import unsayable_model
from meshwright.plans.rules.stack_limits.plan_values import PlanValues
from meshwright.stack.load import load_stack, stack_names
from meshwright.stack.stack import OWN_STACK, Stack
from meshwright.stack.stack_model import SHAPE, StackModel


def unknown_arithmetic(arch: Architecture) -> Iterator[str]:
    """Yield what of a model Meshwright's runtime cannot compute."""
    yield from (problem.rule for problem in arch.numerics.refused)


MODEL_RULES: Mapping[str, Callable[[Architecture], Iterator[str]]] = {
    "megatron-core": unsayable_model,
    OWN_STACK: unknown_arithmetic,
}
"""By stack: what of a model its one model class does not do."""


def rows_of(arch: Architecture, stack: Stack) -> tuple[StackModel, ...]:
    """Return the rows of the stack's models that are this architecture; layers for further tokens are the plan's."""
    main = without_next_tokens(arch)
    return tuple(row for row in stack.models or () if _is_row_of(row, main))


def missing_model(arch: Architecture, stack: Stack) -> list[Problem]:
    """Return why the stack does not have a model, with the stacks that do; nothing where it has it."""
    why = _why_missing(arch, stack)
    return [Problem("stack", stack.id, why, _stacks_with(arch, stack))] if why else []


def _why_missing(arch: Architecture, stack: Stack) -> str:
    if arch.encoder is not None and not stack.encoders:
        return f"{stack.id} does not have {arch.name}: no model with an encoder"
    details = "; ".join(MODEL_RULES[stack.name](arch)) if stack.name in MODEL_RULES else ""
    if details:
        return f"{stack.id} does not have {arch.name}: {details}"
    if stack.models is None or rows_of(arch, stack):
        return ""
    return f"{stack.id} does not have {arch.name}, only {', '.join(row.config for row in stack.models)}"


def _stacks_with(arch: Architecture, without: Stack) -> str:
    names = [
        name for name in stack_names() if name != without.name and not _why_missing(arch, load_stack(name))
    ]
    hint = f"stack: {' or '.join(names)}"
    return (
        hint
        if arch.encoder is None
        else f"{hint} (no export has a model with an encoder: use meshwright run)"
    )


@limit("does not have this model")
def model(plan: PlanValues) -> Iterator[Problem]:
    """Refuse a model that the stack does not have, whatever the plan."""
    yield from missing_model(plan.arch, plan.stack)


@limit("does not cut this model's attention over cp", "cp")
def context_of_model(plan: PlanValues) -> Iterator[Problem]:
    """Refuse cp for a model whose attention the stack does not cut over cp."""
    rows = rows_of(plan.arch, plan.stack) if plan.cp > 1 else ()
    if rows and not any(row.context_parallel for row in rows):
        rule = f"the attention of {rows[0].config} in {plan.stack.id} is not cut over cp: {plan.cp} must be 1"
        yield Problem("layout.cp", plan.cp, rule, "cp: 1")


@limit("does not train this model in this precision")
def trained_precision(plan: PlanValues) -> Iterator[Problem]:
    """Refuse a precision that the stack does not train this model in."""
    rows, precision = rows_of(plan.arch, plan.stack), plan.workload.precision
    precisions = sorted({name for row in rows for name in row.precisions})
    if precisions and precision not in precisions:
        rule = f"{plan.stack.id} trains {plan.arch.name} in {', '.join(precisions)} only"
        yield Problem("workload.precision", precision, rule, f"precision: {precisions[0]}")


@limit("does not train sequences of this length with this model")
def trained_length(plan: PlanValues) -> Iterator[Problem]:
    """Refuse sequences beyond the positions of the stack's configurations of a model."""
    longest, length = [row.max_positions for row in rows_of(plan.arch, plan.stack)], plan.workload.seq_len
    if longest and all(most is not None and length > most for most in longest):
        most = max(most for most in longest if most is not None)
        rule = f"{plan.stack.id} trains {plan.arch.name} with {most} positions at most"
        yield Problem("workload.seq_len", length, rule, f"seq_len: {most}")


MODEL_LIMITS: tuple[StackLimit, ...] = (model, trained_precision, context_of_model, trained_length)


def _is_row_of(row: StackModel, main: Architecture) -> bool:
    if not row.model:
        facts = _facts(main)
        stated = {name: value for name in SHAPE if (value := getattr(row, name)) is not None}
        return main.family in row.families and all(facts[name] == value for name, value in stated.items())
    if row.model == main.name:
        return build_graph(main).parameters == load_model(row.model).parameters
    return _nameless(main) == _of_catalogue(row.model)


@cache
def _of_catalogue(name: str) -> Architecture:
    return _nameless(without_next_tokens(load_model(name).architecture))


def _nameless(arch: Architecture) -> Architecture:
    return replace(arch, name="", source="", assumed=(), left_out=())


def _facts(arch: Architecture) -> dict[str, object]:
    """Return the facts of an architecture by the names of a row; 0 for a part that it does not have."""
    moe, latent = arch.moe, arch.latent
    routed = sum(moe.layers) if moe else 0
    return {
        "layers": arch.layers,
        "dense_layers": arch.layers - routed,
        "hidden": arch.hidden,
        "vocab": arch.vocab,
        "tied_embeddings": arch.tied_embeddings,
        "heads": arch.heads,
        "kv_heads": arch.kv_heads,
        "head_dim": arch.head_dim,
        "intermediate": arch.intermediate,
        "q_rank": (latent.q_rank or 0) if latent else 0,
        "kv_rank": latent.kv_rank if latent else 0,
        "experts": moe.experts if moe else 0,
        "experts_per_token": moe.experts_per_token if moe else 0,
        "expert_intermediate": moe.intermediate if moe else 0,
        "shared_intermediate": moe.shared_intermediate if moe else 0,
    }
