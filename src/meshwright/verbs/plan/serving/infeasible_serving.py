"""Say that no plan keeps the limits: the nearest one, by how much it misses them, and refusals by reason."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from meshwright.cost.serving.serving_report import serving_report
from meshwright.errors import InfeasibleError
from meshwright.result import ServingReport
from meshwright.verbs.plan.serving.pools.nearest_candidate import nearest_candidate, worst_part
from meshwright.verbs.plan.serving.searched_cluster import SearchedCluster
from meshwright.verbs.plan.serving.serving_request import CheckedServingRequest

MOST_REASONS = 5
CAPACITY = "capacity"


class NoServingPlanError(InfeasibleError):
    """No plan keeps the limits; ``details`` has the nearest plan and the counts of refusals."""

    def __init__(
        self, message: str, reasons: Sequence[str], suggestion: str, details: Mapping[str, Any]
    ) -> None:
        super().__init__(message, reasons, suggestion, reasons[:MOST_REASONS])
        self.details = details


def no_plan(
    question: CheckedServingRequest, searched: Sequence[SearchedCluster], rejected: Counter[str]
) -> NoServingPlanError:
    """Return the error for a question that no plan answers."""
    nearest = _nearest(question, searched)
    reasons = [f"{count:,}: {reason}" for reason, count in rejected.most_common()]
    details = {"rejected": dict(rejected.most_common()), "nearest": nearest}
    if nearest is None:
        message = f"No plan of {question.request.model} fits on {', '.join(question.request.on)}."
        hint = "more devices, devices with more memory, or --allow-quantise fp8,fp4"
        return NoServingPlanError(message, reasons, hint, details)
    misses = nearest["misses"]
    missed = [f"{name.removesuffix('_ms')} by {value:,.0f} ms" for name, value in misses.items() if value]
    load = question.workload.rate_per_s
    what = "keeps the limits" if load is None else f"carries {load:g} requests/s within the limits"
    by = f": the nearest one misses {' and '.join(missed)}" if missed else ""
    served = nearest["predict"]["serving"]
    if served["limited_by"] == CAPACITY:
        by = f": the nearest one carries {served['requests_per_s']:.3g}"
    message = f"No plan of {question.request.model} on {', '.join(question.request.on)} {what}{by}."
    return NoServingPlanError(message, reasons, _hint(question, nearest["predict"]), details)


def _hint(question: CheckedServingRequest, predict: Mapping[str, Any]) -> str:
    """Return the changes that would do: limits that the nearest plan keeps, or a larger cluster."""
    asked, serving = question.workload.objectives, predict["serving"]
    if serving["limited_by"] == CAPACITY:
        return f"more devices, or at most --rate {serving['requests_per_s']:.2g}"
    parts = []
    for name, limit in (("ttft", asked and asked.ttft_ms), ("tpot", asked and asked.tpot_ms)):
        mean = serving[f"{name}_s"]
        if limit is not None and mean is not None and 1e3 * mean > limit:
            parts.append(f"--max-{name}-ms {np.ceil(1e3 * mean):.0f}")
    return " ".join(parts) or "more devices, or a lighter load"


def _nearest(question: CheckedServingRequest, searched: Sequence[SearchedCluster]) -> dict[str, Any] | None:
    best: tuple[float, dict[str, Any]] | None = None
    for one in searched:
        table, designs = nearest_candidate(one.space)
        if not len(table):
            continue
        near = replace(one, found=replace(one.found, designs=designs))
        file, resolved = near.plan(table[0])
        report = serving_report(resolved, question.levels)
        part = float(worst_part(table, question.limits)[0])
        part = inf if np.isnan(part) else part
        answer = {
            "plan": file.to_data(),
            "predict": report.to_json(),
            "misses": _misses(question, report),
        }
        if best is None or part < best[0]:
            best = (part, answer)
    return None if best is None else best[1]


def _misses(question: CheckedServingRequest, report: ServingReport) -> dict[str, float | None]:
    """Return by how many ms each limit is missed: 0 where it is kept, null where there is no limit or no mean."""
    asked, found = question.workload.objectives, report.to_json()["serving"]
    misses: dict[str, float | None] = {}
    for name, limit in (("ttft", asked and asked.ttft_ms), ("tpot", asked and asked.tpot_ms)):
        mean = found[f"{name}_s"]
        misses[f"{name}_ms"] = None if limit is None or mean is None else max(1e3 * mean - limit, 0.0)
    return misses
