"""Limits of Meshwright's own runtime: one table for plan, check, run, verify and the docs.

It comes after the laws that every plan keeps (``plans/rules/check_plan.py``) and after what no part of the project
does yet (``plans/rules/not_in_this_release.py``). A plan outside of it can still be predicted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.layers.plan_of_layout import each_layout
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.plans.rules.stack_limits.host_state_limits import NOT_RUN, host_state_limits
from meshwright.plans.rules.stack_limits.limits import StackLimit, broken, limit
from meshwright.plans.rules.stack_limits.plan_values import PlanValues, values_of
from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK
from meshwright.stack.state_types import usual_types

PRECISIONS = ("bf16",)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeLimit:
    """A row of the table: of ``what`` the runtime knows ``runs`` and refuses ``refused``.

    ``limit`` finds the problems of a plan. ``proof``: it also hinders ``verify``, which computes in fp64.
    """

    what: str
    runs: str
    refused: str
    limit: StackLimit
    proof: bool = True


def unsupported_by_runtime(plan: LongPlan, model: ModelGraph, *, proof: bool = False) -> list[Problem]:
    """Return all that keeps a legal plan from being run, or from being proven where ``proof``."""
    stack, workload = load_stack(OWN_STACK), workload_of(plan)
    found: dict[Problem, None] = {}
    for one in each_layout(plan):
        values = values_of(one, model.architecture, workload, stack)
        found |= dict.fromkeys(broken((row.limit for row in LIMITS if row.proof or not proof), values))
    return list(found)


@limit("does not run this model's arithmetic")
def _model(plan: PlanValues) -> Iterator[Problem]:
    yield from plan.arch.numerics.refused


@limit("does not undo corrections of routers", "schedule")
def _balance(plan: PlanValues) -> Iterator[Problem]:
    routing = plan.arch.numerics.routing
    if routing is not None and routing.correction_speed and plan.workload.optimizer.forward_only:
        rule = f"corrections of routers that move, under {plan.workload.optimizer.name}: {NOT_RUN}"
        yield Problem("workload.optimizer", plan.workload.optimizer.name, rule, "adamw")
    if routing is not None and routing.correction_speed and plan.schedule.step_validation == "after":
        rule = f"corrections of routers that move behind a step which may be undone: {NOT_RUN}"
        yield Problem("pipeline.schedule.step_validation", "after", rule, "step_validation: before")


@limit(
    "does not run layers for further tokens so",
    "pp",
    "virtual_stages",
    "schedule",
    "sharding",
    "gather",
)
def _next_tokens(plan: PlanValues) -> Iterator[Problem]:
    """Modules work with the head's parameters and in its passes."""
    arch, pipeline = plan.arch, plan.pipeline
    count = arch.next_token_layers
    if not count:
        return
    last = plan.last_stage
    what = f"the {count} layers that predict further tokens" if count > 1 else "the layer for further tokens"
    if last.count < count:
        rule = f"{what} and the head are in one stage, and the last one has {last.count} layers: {NOT_RUN}"
        yield Problem("pipeline.stages", last.count, rule, f"{count} layers or more in the last stage")
    if plan.sharding == "zero3" and plan.gather == "per-layer":
        rule = (
            f"{what} works with the head's table, which is gathered and reduced for the head alone: {NOT_RUN}"
        )
        yield Problem("gather", plan.gather, rule, "gather: per-micro-batch or per-step")
    if pipeline.chains > 1:
        rule = f"{what} copies the embedding's table, which {pipeline.chains} chains hold already: {NOT_RUN}"
        yield Problem("pipeline.schedule", str(plan.schedule), rule, "another schedule, such as dualpipev")


@limit("leaves dropout out")
def _dropout(plan: PlanValues) -> Iterator[Problem]:
    if plan.arch.dropout:
        yield Problem("model", plan.arch.name, "dropout is left out", "set its rates to 0", "warning")


@limit("trains adapters of a written form")
def _adapters(plan: PlanValues) -> Iterator[Problem]:
    task, adapter = plan.workload.task, plan.workload.adapter
    if task == "lora" and adapter is None:
        rule = f"without a form of adapters {NOT_RUN}"
        yield Problem("workload.task", task, rule, "adapter: {form: lora}")


@limit("repeats no exchanges of matrices", "schedule")
def _optimizer(plan: PlanValues) -> Iterator[Problem]:
    optimizer = plan.workload.optimizer
    if optimizer.kind.of_matrices and plan.schedule.step_validation == "after":
        rule = f"{optimizer.name} may exchange matrices in a step which may be undone: {NOT_RUN}"
        yield Problem("pipeline.schedule.step_validation", "after", rule, "step_validation: before")


@limit("gathers no parameters in fp8")
def _state_types(plan: PlanValues) -> Iterator[Problem]:
    if plan.dtypes.get("gather") == "fp8":
        usual = usual_types(plan.stack, plan.workload.precision).gather
        yield Problem("dtypes.gather", "fp8", NOT_RUN, f"dtypes.gather: {usual}")


@limit(
    "runs states on the host of other plans only",
    "offloaded_optimizer",
    "offloaded_parameters",
    "schedule",
    "dtypes",
)
def _host_states(plan: PlanValues) -> Iterator[Problem]:
    yield from host_state_limits(plan)


@limit("trains in bf16 only")
def _precision(plan: PlanValues) -> Iterator[Problem]:
    precision = plan.workload.precision
    if precision not in PRECISIONS:
        yield Problem("workload.precision", precision, NOT_RUN, " or ".join(PRECISIONS))


@limit("validates steps beforehand where the vocabulary is spread", "schedule")
def _validation(plan: PlanValues) -> Iterator[Problem]:
    choice = plan.schedule
    if choice.step_validation == "after" and choice.vocabulary:
        hint = "step_validation: before, or the vocabulary at the ends"
        yield Problem("pipeline.schedule.step_validation", choice.step_validation, NOT_RUN, hint)


@limit("has no written scores with attention sinks", "cp", "context")
def _sinks(plan: PlanValues) -> Iterator[Problem]:
    context = plan.context
    if plan.cp > 1 and context.kind.writes_scores and plan.arch.attention_sinks:
        yield Problem("layout.context", context.form, f"with attention sinks {NOT_RUN}", "context: ring")


LIMITS: tuple[RuntimeLimit, ...] = (
    RuntimeLimit(
        what="model",
        runs=(
            "decoders with grouped heads, latent or linear attention, Mamba-2, windows, sinks, head norms, biases, "
            "tied embeddings, any rotation of the zoo, routed and shared experts, with or without a capacity; encoders "
            "of a second text (T5) or of images (Qwen2.5-VL)"
        ),
        refused="unknown arithmetic",
        limit=_model,
    ),
    RuntimeLimit(
        what="layers that predict further tokens",
        runs="in the last stage, with the head",
        refused="elsewhere; with `gather: per-layer`; with `dualpipe`",
        limit=_next_tokens,
    ),
    RuntimeLimit(
        what="balance of experts",
        runs="none, losses by sequence or micro-batch, corrections that move",
        refused="corrections that move with `step_validation: after`, or with `zo-sgd`",
        limit=_balance,
    ),
    RuntimeLimit(
        what="dropout",
        runs="none",
        refused="left out, with a warning",
        limit=_dropout,
    ),
    RuntimeLimit(
        what="workload.task",
        runs="`pretrain` `sft` `lora` with an `adapter`",
        refused="`lora` without `adapter`",
        limit=_adapters,
    ),
    RuntimeLimit(
        what="workload.optimizer",
        runs="`adamw` `sgd` `lion` `muon` `qh-adamw` `zo-sgd`, with their options",
        refused="`muon` with `step_validation: after`",
        limit=_optimizer,
    ),
    RuntimeLimit(
        what="dtypes",
        runs="all types of states; what a plan does not write is stored in the types of `meshwright`",
        refused="`gather: fp8`",
        limit=_state_types,
    ),
    RuntimeLimit(
        what="offload",
        runs="`activations`; any shares of `optimizer` and `parameters`",
        refused=(
            "`manager: chunks`; states on the host with adapters, `zo-sgd`, `step_validation: after`, "
            "layers for further tokens, `master: none`, narrow `gradient` or `reduce`; "
            "a share between 0 and 1 with moments in fp16 or fp8; `muon` with `parameters`"
        ),
        limit=_host_states,
    ),
    RuntimeLimit(
        what="workload.precision",
        runs="`bf16`; `verify` takes any and computes in fp64",
        refused="`fp16` `fp8` `mxfp8` `nvfp4`",
        limit=_precision,
        proof=False,
    ),
    RuntimeLimit(
        what="layout.context",
        runs="every form",
        refused="`rsa` with attention sinks",
        limit=_sinks,
    ),
    RuntimeLimit(
        what="pipeline.schedule.step_validation",
        runs="`before` `after`",
        refused="`after` with a vocabulary that is spread over pipeline ranks",
        limit=_validation,
    ),
)
"""The table."""
OWN_LIMITS: tuple[StackLimit, ...] = tuple(row.limit for row in LIMITS if row.what != "model")
"""Those of plans; a stack's models have a rule of their own (``stack_models.py``)."""
