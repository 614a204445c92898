"""Search the best plans for each set of element types, where a question allows it.

Narrower states always take less memory and time, and what they do to the loss is not predicted. So the fastest plan of
a set is recommended only if the model can tell it apart from the fastest plan of a set with fewer changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.cost.uncertainty.step_error import pair_interval
from meshwright.errors import InfeasibleError
from meshwright.plans.forms.dtypes import Dtypes
from meshwright.plans.setting import Setting
from meshwright.stack.state_types import (
    HALF,
    SCALED,
    allowed_types,
    changed_types,
    half_of,
    split_joints,
    types_of,
    with_types,
)
from meshwright.verbs.plan.plan_on_cluster import PlanAnswer, PlanRequest, answer, setting_of
from meshwright.verbs.plan.proposal import Proposal
from meshwright.verbs.plan.search_space import Progress
from meshwright.verbs.plan.searched_values import LeftOutValues, SearchedValues

NOT_PREDICTED = "what narrower states do to the loss is not predicted"
GRADIENTS = {"gradient": HALF, "reduce": HALF}
MOMENTS = {"first_moment": "bf16", "second_moment": "bf16"}
SETS: tuple[Mapping[str, str], ...] = (
    {},
    GRADIENTS,
    MOMENTS,
    GRADIENTS | MOMENTS,
    GRADIENTS | {"first_moment": "fp8", "second_moment": "fp16"},
    GRADIENTS | MOMENTS | {"master": "none"},
)
"""Sets of types, the widest first; a stack has those that it runs, of which it may change further keys along."""


@dataclass(frozen=True, slots=True)
class OfTypes:
    """The answer for one set of types; ``changed`` holds its differences from the stack."""

    changed: Mapping[str, str]
    found: PlanAnswer

    @property
    def step_s(self) -> float:
        """Predicted seconds of the best plan's step."""
        return self.found.proposals[0].report.step_time_s


def answer_allowing_types(
    question: PlanRequest, setting: Setting | None = None, progress: Progress | None = None
) -> PlanAnswer:
    """Answer a question; with ``allow: dtypes`` for every set of types. Raises as ``answer`` does."""
    if "dtypes" not in question.allow:
        return answer(question, setting, progress)
    setting = setting or setting_of(question.header)
    found, refused = list[OfTypes](), list[InfeasibleError]()
    for changed in type_sets(setting):
        dtypes = Dtypes.model_validate(changed) if changed else None
        header = question.header.model_copy(update={"dtypes": dtypes})
        workload = setting.workload
        own = with_types(setting.stack, workload.precision, changed, workload.optimizer)
        narrowed = replace(setting, stack=own)
        try:
            found.append(OfTypes(changed, answer(replace(question, header=header), narrowed, progress)))
        except InfeasibleError as reason:
            refused.append(reason)
    if not found:
        raise refused[-1]
    return _together(in_order(found, pair_interval(setting).high), question, setting)


def type_sets(setting: Setting) -> list[dict[str, str]]:
    """Return the sets of types that the stack runs, each as what differs from its own types."""
    stack, precision, optimizer = setting.stack, setting.workload.precision, setting.workload.optimizer
    allowed, sets = allowed_types(stack, precision), list[dict[str, str]]()
    for one in SETS:
        written = {key: half_of(precision) if word == HALF else word for key, word in one.items()}
        written = {
            key: word for key, word in written.items() if key not in MOMENTS or key in optimizer.moments
        }
        if optimizer.forward_only:
            written = {key: word for key, word in written.items() if key in ("gather", "master")}
        own_moments = optimizer.own_moments if optimizer.kind.of_matrices else ()
        if any(written.get(key) in SCALED for key in own_moments) or any(
            word not in allowed[key] for key, word in written.items()
        ):
            continue
        changed = changed_types(stack, precision, written)
        runs = not any(split_joints(stack, precision, types_of(stack, precision, written)))
        if runs and changed not in sets:
            sets.append(changed)
    return sets


def in_order(found: Sequence[OfTypes], ratio: float) -> list[OfTypes]:
    """Return answers by step time; of those within ``ratio`` of the quickest, that with the fewest changes first."""
    left, ordered = list(found), list[OfTypes]()
    while left:
        quickest = min(one.step_s for one in left)
        near = [one for one in left if one.step_s <= ratio * quickest]
        best = min(near, key=lambda one: (len(one.changed), one.step_s))
        ordered.append(best)
        left.remove(best)
    return ordered


def _together(found: Sequence[OfTypes], question: PlanRequest, setting: Setting) -> PlanAnswer:
    """Return one answer: the best plan of each set, then the others by step time."""
    plans = [[_with_remark(plan, one.changed) for plan in one.found.proposals] for one in found]
    others = sorted((plan for of in plans for plan in of[1:]), key=lambda plan: plan.report.step_time_s)
    first, answers = found[0].found, [one.found for one in found]
    rejected: dict[str, int] = {}
    for one in answers:
        for reason, count in one.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + count
    values = tuple(_words(changed) for changed in type_sets(setting))
    left_out = tuple(row for row in first.space.left_out if row.key != "dtypes")
    space = replace(
        first.space,
        searched=(*first.space.searched, SearchedValues("dtypes", values)),
        left_out=(*left_out, *_left_out(first)),
    )
    return replace(
        first,
        considered=sum(one.considered for one in answers),
        legal=sum(one.legal for one in answers),
        evaluated=sum(one.evaluated for one in answers),
        feasible=sum(one.feasible for one in answers),
        unplayed=sum(one.unplayed for one in answers),
        gap=max(one.gap for one in answers),
        interrupted=any(one.interrupted for one in answers),
        search_time_s=sum(one.search_time_s for one in answers),
        rejected=dict(sorted(rejected.items(), key=lambda item: -item[1])),
        proposals=tuple([*(of[0] for of in plans), *others][: question.top]),
        fastest=min((one.fastest for one in answers), key=lambda plan: plan.report.step_time_s),
        space=space,
    )


def _left_out(found: PlanAnswer) -> Iterator[LeftOutValues]:
    """Yield the types that no set has."""
    for row in found.space.left_out:
        if row.key == "dtypes":
            yield replace(row, why="other sets than those searched; predict --set KEY=TYPE prices one")


def _with_remark(plan: Proposal, changed: Mapping[str, str]) -> Proposal:
    if not changed:
        return plan
    remark = f"dtypes {_words(changed)}: {NOT_PREDICTED}; compare the losses of a short run."
    report = plan.report
    return replace(plan, report=replace(report, remarks=(remark, *report.remarks)))


def _words(changed: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {word}" for key, word in changed.items()) or "the stack's"
