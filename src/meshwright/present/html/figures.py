"""Choose the pictures of a verb's document: step times of its plans, and memory of the pipeline ranks of the first."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshwright.present.plan_answers.layout_text import layout_words, pipeline_words
from meshwright.present.plan_answers.prediction import KINDS, PARTS
from meshwright.present.svg.stacked_bars import COLOURS, StackedBars
from meshwright.units import format_bytes, format_seconds

Data = Mapping[str, Any]
KIND_COLOURS = dict(zip(KINDS, COLOURS, strict=False))
"""The colour of each kind of memory, in all pictures."""


def figures_of(data: Data) -> Iterator[StackedBars]:
    """Yield the pictures of a document; none where it has neither predictions nor plans.

    A measured step has no parts, and on CPUs no memory.
    """
    if data.get("plans") and "predict" in data["plans"][0]:
        plans = data["plans"]
        labels = [f"{number}: {_plan_words(one['plan'])}" for number, one in enumerate(plans, 1)]
        yield _times(labels, [one["predict"] for one in plans])
        yield memory_bars(plans[0]["predict"], "Memory of plan 1")
    elif "breakdown_s" in data and "step_time_s" in data:
        if data["breakdown_s"]:
            yield _times([data["kind"]], [data])
        if data["memory_bytes"].get("stages"):
            yield memory_bars(data, "Memory")


def _plan_words(plan: Data) -> str:
    return f"{layout_words(plan['layout'])} {pipeline_words(plan['pipeline'])}"


def _times(labels: Sequence[str], reports: Sequence[Data]) -> StackedBars:
    """Return the parts of the step times, each as the busiest pipeline rank has it."""
    bars = [
        (label, {PARTS.get(name, name): seconds for name, seconds in report["breakdown_s"].items()})
        for label, report in zip(labels, reports, strict=True)
    ]
    title = f"Time of a step ({reports[0]['kind']}), exposed parts on the busiest pipeline rank"
    return StackedBars(title, bars, format_seconds)


def memory_bars(report: Data, title: str) -> StackedBars:
    """Return the peak memory of each pipeline rank against the capacity of a device."""
    memory = report["memory_bytes"]
    bars = [
        (f"pipeline rank {stage['rank']}", {kind: stage[kind] for kind in KINDS if kind in stage})
        for stage in memory["stages"]
    ]
    title = f"{title} ({report['kind']}), per device"
    return StackedBars(title, bars, format_bytes, memory["capacity"], "a device has", KIND_COLOURS)
