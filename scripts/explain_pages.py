"""Examples of explanations for the documentation: the README's plan taken apart, and held against a plan beside it."""

from collections.abc import Iterable
from functools import cache

from markdown_table import table

from meshwright import api
from meshwright.explanation.choice_comparison import compare_values
from meshwright.explanation.explain_plan import explained
from meshwright.explanation.explanation_result import Explanation
from meshwright.explanation.plan_comparison import PlanComparison, compare_plans
from meshwright.plans.overrides import apply_overrides
from meshwright.plans.resolve import Resolved, resolve
from meshwright.units import format_bytes, format_seconds

MODEL, CLUSTER, DEVICES = "llama-3.1-70b", "h100-sxm-80gb x 64", 64
OTHER = ("tp=4", "cp=2")
CHOICES = 6


@cache
def _best() -> Resolved:
    answer = api.plan(MODEL, on=CLUSTER, seq_len=8192, global_batch=512, top=1)
    return resolve(answer.proposals[0].plan)


@cache
def _explained() -> Explanation:
    return explained(_best(), lambda what, part: None)


@cache
def _against() -> PlanComparison:
    short = _best().short
    assert short is not None
    return compare_plans(_best(), resolve(apply_overrides(short, OTHER, DEVICES)), "other.yaml")


def explained_summary() -> str:
    """The sentences with which the explanation begins."""
    return _list(_explained().summary)


def explained_parts() -> str:
    """Where time and memory of the example go."""
    data = _explained().to_json()
    rows = [
        (part["part"], format_seconds(part["seconds"]), f"{part['share']:.1%}")
        for part in data["time"]["parts"]
    ]
    sentences = [*data["time"]["text"], *data["memory"]["text"]]
    return "\n".join([table(("part", "time", "share"), rows), _list(sentences)])


def explained_choices() -> str:
    """The neighbours of the example that fit, and one that does not."""
    fitting = [one for one in _explained().choices if one.forecast.fits][:CHOICES]
    large = [one for one in _explained().choices if not one.forecast.fits][:1]
    return _list(one.text for one in (*fitting, *large))


def explained_changes() -> str:
    """How the example answers to its cluster, and where the answer changes."""
    found = _explained()
    return "\n".join([_list(one.text for one in found.sensitivities), _list(one.text for one in found.turns)])


def explained_against() -> str:
    """The example against a plan with more tensor parallelism."""
    found = _against()
    return _list([*found.summary, *found.lines])


def explained_each() -> str:
    """All forms of context parallelism of the example."""
    found = compare_values(_best(), "context")
    values = [one.to_json() for one in found.values]
    rows = [
        (
            one["value"],
            format_seconds(one["step_time_s"]),
            "as in the plan" if one["own"] else f"{one['ratio'] - 1:+.1%}",
            format_bytes(one["memory_bytes"]),
        )
        for one in values
        if not one["rule"]
    ]
    refused = (f"{one['value']}: {one['rule']}" for one in values if one["rule"])
    return "\n".join([table(("context", "step", "change", "memory"), rows), _list(refused)])


def _list(sentences: Iterable[str]) -> str:
    return "".join(f"- {sentence}\n" for sentence in sentences)
