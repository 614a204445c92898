"""What Meshwright's own runtime runs of the plan language: one table, for ``run``, ``verify``, ``check`` and the docs.

It comes after the laws that every plan keeps (``plan/check.py``) and after what no part of the house does yet
(``plan/supported.py``). A plan outside of it can still be planned, predicted and exported.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph
from meshwright.plan.layers import chain_layers
from meshwright.plan.long import LongPlan

OWN_STACK = "meshwright"
NOT_RUN = "can be planned, not run yet"
PRECISIONS = ("bf16",)


@dataclass(frozen=True, slots=True)
class Limit:
    """A row of the table: of ``what`` the runtime knows ``runs`` and refuses ``refused``.

    ``find`` gives the problems of a plan. ``proof``: it also hinders ``verify``, which computes in fp64.
    """

    what: str
    runs: str
    refused: str
    find: Callable[[LongPlan, ModelGraph], Iterator[Problem]]
    proof: bool = True


def hindrances(plan: LongPlan, model: ModelGraph, *, proof: bool = False) -> list[Problem]:
    """Everything that keeps a legal plan from being run, or from being proven where ``proof``."""
    limits = [limit for limit in LIMITS if limit.proof or not proof]
    return [problem for limit in limits for problem in limit.find(plan, model)]


def _model(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    yield from model.architecture.numerics.refused


def _balance(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    routing = model.architecture.numerics.routing
    if routing is not None and routing.correction_speed and plan.choice.step_validation == "after":
        rule = f"corrections of routers that move behind a step which may be undone: {NOT_RUN}"
        yield Problem("pipeline.schedule.step_validation", "after", rule, "step_validation: before")


def _next_tokens(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    """Modules work with the head's parameters and in its passes."""
    arch, pipeline = model.architecture, plan.pipeline
    count = arch.next_token_layers
    if not count:
        return
    (*_, last) = chain_layers(pipeline, arch.layers)
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
        yield Problem("pipeline.schedule", str(plan.choice), rule, "another schedule, such as dualpipev")


def _dropout(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    if model.architecture.dropout:
        yield Problem("model", model.name, "dropout is left out", "set its rates to 0", "warning")


def _task(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    task = plan.workload.task
    if task == "lora":
        yield Problem("workload.task", task, NOT_RUN, "pretrain or sft, which train all parameters")


def _optimizer(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    optimizer = plan.workload.optimizer
    if optimizer != "adamw":
        yield Problem("workload.optimizer", optimizer, NOT_RUN, "adamw")


def _precision(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    precision = plan.workload.precision
    if precision not in PRECISIONS:
        yield Problem("workload.precision", precision, NOT_RUN, " or ".join(PRECISIONS))


def _validation(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    choice = plan.choice
    if choice.step_validation == "after" and choice.vocabulary:
        hint = "step_validation: before, or the vocabulary at the ends"
        yield Problem("pipeline.schedule.step_validation", choice.step_validation, NOT_RUN, hint)


def _sinks(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    for layout in plan.layouts.values():
        context = layout.context_in_full
        if layout.grid.cp > 1 and context.writes_scores and model.architecture.attention_sinks:
            yield Problem("layout.context", context.form, f"with attention sinks {NOT_RUN}", "context: ring")


LIMITS: tuple[Limit, ...] = (
    Limit(
        "model",
        "decoders with grouped heads, latent or linear attention, windows, sinks, head norms, biases, tied embeddings, "
        "any rotation of the zoo, routed and shared experts, with or without a capacity",
        "unknown arithmetic",
        _model,
    ),
    Limit(
        "layers that predict further tokens",
        "in the last stage, with the head",
        "elsewhere; with `gather: per-layer`; with `dualpipe`",
        _next_tokens,
    ),
    Limit(
        "balance of experts",
        "none, losses by sequence or micro-batch, corrections that move",
        "corrections that move with `step_validation: after`",
        _balance,
    ),
    Limit("dropout", "none", "left out, with a warning", _dropout),
    Limit("workload.task", "`pretrain` `sft`", "`lora`", _task),
    Limit("workload.optimizer", "`adamw`", "`sgd`", _optimizer),
    Limit(
        "workload.precision",
        "`bf16`; `verify` takes any and computes in fp64",
        "`fp16` `fp8` `mxfp8` `nvfp4`",
        _precision,
        proof=False,
    ),
    Limit("layout.context", "every form", "`rsa` with attention sinks", _sinks),
    Limit(
        "pipeline.schedule.step_validation",
        "`before` `after`",
        "`after` with a vocabulary that is spread over pipeline ranks",
        _validation,
    ),
)
"""The table."""
