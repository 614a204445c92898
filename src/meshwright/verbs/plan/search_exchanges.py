"""Search plans whose replicas communicate less, where a question allows it.

``local`` tries exchanges of parameters every so many steps with DiLoCo's outer optimizer, ``compress`` encoded
gradients, each on the plans that are recommended without them. What they do to the loss is not predicted, and they
always take less time on slow links: so the fastest of them is recommended only if the model can tell it apart from the
fastest plan without.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from meshwright.cluster.fast_domains import usable_domain
from meshwright.errors import InputError, PlanError, Problem
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve_with
from meshwright.plans.setting import Setting
from meshwright.plans.synchronisation.exchange_text import LOSS_NOT_PREDICTED, LOSS_REMARK
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.search.choice_reasons import relative_step_time
from meshwright.search.reasons import Reason
from meshwright.stack.stack import OWN_STACK
from meshwright.verbs.plan.plan_on_cluster import EXCHANGES, PlanAnswer, PlanRequest, setting_of
from meshwright.verbs.plan.proposal import Proposal
from meshwright.verbs.plan.search_dtypes import answer_allowing_types
from meshwright.verbs.plan.search_space import Progress
from meshwright.verbs.predict.predict_plan import predicted

PERIODS = (16, 64, 256)
OUTER = {"nesterov": {"lr": 0.7, "momentum": 0.9}}
LOCAL: tuple[Mapping[str, object], ...] = tuple(
    {"state": "parameter", "over": "dp_replicate", "every": every, "outer": OUTER} for every in PERIODS
)
CODECS: tuple[Mapping[str, object], ...] = (
    {"quantise": "int8", "bucket": 1024, "error_feedback": True},
    {"low_rank": 4, "error_feedback": True},
)
AXES = ("dp_replicate", "dp_shard")


def answer_allowing(
    question: PlanRequest, setting: Setting | None = None, progress: Progress | None = None
) -> PlanAnswer:
    """Answer a question; with ``allow`` for ``local`` and ``compress`` of replicas too. Raises as ``answer`` does."""
    wanted = [key for key in question.allow if key in EXCHANGES]
    others = tuple(key for key in question.allow if key not in EXCHANGES)
    if not wanted:
        return answer_allowing_types(question, setting, progress)
    setting = setting or setting_of(question.header)
    if not setting.stack.synchronises:
        rule = f"{setting.stack.id} runs no plan whose replicas communicate less"
        raise InputError(Problem("allow", ", ".join(wanted), rule, f"stack: {OWN_STACK}"))
    base = answer_allowing_types(replace(question, allow=others), setting, progress)
    found = [
        less
        for proposal in base.proposals
        if proposal.long is None
        for plan in candidates(proposal.plan, wanted, usable_domain(setting.cluster.pool))
        if (less := _proposal(proposal, plan, setting)) is not None
    ]
    if not found:
        return base
    quickest = min(found, key=_step_s)
    told_apart = _step_s(quickest) * base.tie_ratio < _step_s(base.proposals[0])
    others_found = sorted((one for one in found if one is not quickest), key=_step_s)
    ordered = (
        [quickest, *base.proposals] if told_apart else [base.proposals[0], quickest, *base.proposals[1:]]
    )
    return replace(
        base,
        evaluated=base.evaluated + len(found),
        proposals=tuple([*ordered, *others_found][: max(question.top, 2)]),
        fastest=min((quickest, base.fastest), key=_step_s),
    )


def candidates(plan: ShortPlan, wanted: list[str], domain: int) -> Iterator[ShortPlan]:
    """Yield a plan with entries to try; ``domain`` is the size of a fast domain, in which islands may lie."""
    islands = with_islands(plan, domain)
    for entry in LOCAL if "local" in wanted and islands.layout.dp_replicate > 1 else ():
        yield islands.model_copy(update={"synchronise": (Synchronisation.model_validate(entry),)})
    for codec in CODECS if "compress" in wanted else ():
        axes = [axis for axis in AXES if getattr(plan.layout, axis) > 1]
        entries = ({"state": "gradient", "over": axis, "compress": codec} for axis in axes)
        if axes:
            yield plan.model_copy(update={"synchronise": tuple(map(Synchronisation.model_validate, entries))})


def with_islands(plan: ShortPlan, domain: int) -> ShortPlan:
    """Return a plan whose states are sharded inside of fast domains only, with replicas of what lies across them."""
    layout = plan.layout
    inside = max(1, domain // (layout.tp * layout.cp))
    if layout.dp_replicate > 1 or layout.dp_shard % inside or layout.dp_shard == inside:
        return plan
    split = layout.model_copy(update={"dp_replicate": layout.dp_shard // inside, "dp_shard": inside})
    return plan.model_copy(update={"layout": split})


def _proposal(one: Proposal, short: ShortPlan, setting: Setting) -> Proposal | None:
    """Return a proposal of a plan with entries; None where they do not go with it, or it does not fit."""
    long = expand(short, setting.model.architecture)
    try:
        legal = resolve_with(long, setting.model, setting.cluster, setting.stack)
        report = predicted(replace(legal, setting=setting))
    except (PlanError, InputError):
        return None
    if not report.fits:
        return None
    return replace(
        one,
        plan=short,
        report=replace(report, remarks=(LOSS_REMARK, *report.remarks)),
        reasons=(_reason(short, report.step_time_s, _step_s(one)), *one.reasons),
        regret=None,
    )


def _reason(short: ShortPlan, step_s: float, exact_s: float) -> Reason:
    """Return the reason for the entries of a plan: the step of the plan without them that it was made from."""
    exact = f"exact in every step: {relative_step_time(exact_s, step_s)}"
    text = f"{exact}, the plan that the other reasons are of; {LOSS_NOT_PREDICTED}"
    words = ", ".join(f"{entry.state} over {entry.over}" for entry in short.synchronise)
    return Reason("synchronise", words, text, exact_s / step_s - 1)


def _step_s(one: Proposal) -> float:
    return one.report.step_time_s
