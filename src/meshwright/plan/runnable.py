"""What Meshwright's own runtime runs of the plan language: one table, for ``run``, ``verify``, ``check`` and the docs.

It comes after the laws that every plan keeps (``plan/check.py``) and after what no part of the house does yet
(``plan/supported.py``). A plan outside of it can still be planned, predicted and exported.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph
from meshwright.plan.long import LongPlan

OWN_STACK = "meshwright"
NOT_RUN = "can be planned, not run yet"
RECOMPUTED = ("none", "selective", "full", "core_attn", "layernorm", "mlp")
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


def _routed(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    if model.architecture.moe:
        yield Problem("model", model.name, f"mixture-of-experts layers {NOT_RUN}", "a dense model")


def _latent(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    if model.architecture.latent:
        yield Problem("model", model.name, f"latent attention {NOT_RUN}", "a model with grouped heads")


def _sinks(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    if model.architecture.attention_sinks:
        yield Problem("model", model.name, f"attention sinks {NOT_RUN}", "a model without sinks")


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


def _context(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    for layout in plan.layouts.values():
        if layout.grid.cp > 1:
            yield Problem("layout.cp", layout.grid.cp, NOT_RUN, "cp: 1")


def _experts(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    for layout in plan.layouts.values():
        mesh = layout.experts
        for axis, degree in (("ep", mesh.ep), ("etp", mesh.etp)) if mesh else ():
            if degree > 1:
                yield Problem(f"layout.{axis}", degree, NOT_RUN, f"{axis}: 1")


def _validation(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    choice = plan.choice
    if choice.step_validation == "after" and choice.vocabulary:
        hint = "step_validation: before, or the vocabulary at the ends"
        yield Problem("pipeline.schedule.step_validation", choice.step_validation, NOT_RUN, hint)


def _recompute(plan: LongPlan, model: ModelGraph) -> Iterator[Problem]:
    for key, rule in plan.layers.items():
        names = (rule.recompute,) if isinstance(rule.recompute, str) else rule.recompute
        wrong = [name for name in names if name not in RECOMPUTED]
        if wrong:
            hint = "some of " + ", ".join(RECOMPUTED)
            yield Problem(f"layers.{key}.recompute", ", ".join(wrong), NOT_RUN, hint)


LIMITS: tuple[Limit, ...] = (
    Limit(
        "model",
        "dense decoders with grouped heads, windows, head norms, biases, tied embeddings, any rotation of the zoo",
        "unknown arithmetic",
        _model,
    ),
    Limit("experts", "none; their arithmetic is known, of one device", "any", _routed),
    Limit("latent attention", "none; its arithmetic is known, of one device", "any", _latent),
    Limit("attention sinks", "none; their arithmetic is known, of one device", "any", _sinks),
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
    Limit("layout.cp", "1", "more", _context),
    Limit("layout.ep, layout.etp", "1", "more", _experts),
    Limit(
        "pipeline.schedule.step_validation",
        "`before` `after`",
        "`after` with a vocabulary that is spread over pipeline ranks",
        _validation,
    ),
    Limit(
        "recompute",
        " ".join(f"`{name}`" for name in RECOMPUTED),
        "`moe` `moe_act` `mla_up_proj` `shared_experts`",
        _recompute,
    ),
)
"""The table."""
