"""Plans of a small question, explained once for all tests: the best one, one that is not, one that does not fit."""

from functools import cache

from meshwright import api
from meshwright.explanation.explain_plan import explained
from meshwright.explanation.explanation_result import Explanation
from meshwright.explanation.plan_difference import ExplainedPlan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan, WorkloadSpec
from meshwright.plans.resolve import Resolved, resolve

QUESTION = {"model": "llama-3.1-8b", "cluster": "h100-sxm-80gb x 8", "stack": "megatron-core"}
WORKLOAD = WorkloadSpec(seq_len=4096, global_batch=32)
PLAIN = {"layout": {"pp": 2, "dp_shard": 2, "tp": 2}, "sharding": "zero1"}


def plan(**changes) -> ShortPlan:
    """A plan of the question; ``changes`` are its keys."""
    return ShortPlan.model_validate({"plan": 1, **QUESTION, "workload": WORKLOAD, **PLAIN, **changes})


def resolved(**changes) -> Resolved:
    """The same, with what it is for."""
    return resolve(plan(**changes))


def in_full(**changes) -> Resolved:
    """The same under another name of its layout, which no short form says: it is simulated."""
    long = resolved(**changes).long
    (layout,) = long.layouts.values()
    layers = {key: rule.model_copy(update={"layout": "other"}) for key, rule in long.layers.items()}
    return resolve(long.model_copy(update={"layouts": {"other": layout}, "layers": layers}))


@cache
def best() -> Resolved:
    """The plan that a search proposes."""
    found = api.plan(
        QUESTION["model"],
        on=QUESTION["cluster"],
        seq_len=4096,
        global_batch=32,
        stack=QUESTION["stack"],
        top=1,
    )
    return resolve(found.proposals[0].plan)


@cache
def explained_best() -> Explanation:
    """The explanation of the best plan."""
    return _explained(best())


@cache
def explained_plain() -> Explanation:
    """The explanation of a plan with a pipeline that is not the best."""
    return _explained(resolved())


@cache
def explained_too_large() -> Explanation:
    """The explanation of a plan that does not fit."""
    return _explained(resolved(layout={"dp_shard": 8}, pipeline={"micro_batch": 4}))


def every_case() -> tuple[Explanation, ...]:
    """All of them."""
    return explained_best(), explained_plain(), explained_too_large()


def subject(**changes) -> ExplainedPlan:
    """A plan of the question, predicted."""
    return ExplainedPlan.of(resolved(**changes))


def _explained(plan_: Resolved) -> Explanation:
    return explained(plan_, lambda what, part: None)


def long_of(short: ShortPlan, of: Resolved):
    """The long form of a plan for the same model."""
    return expand(short, of.setting.model.architecture)
