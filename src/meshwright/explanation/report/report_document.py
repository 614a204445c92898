"""The report of a plan as one document: prediction, explanation, layout, simulated step, comparison and search.

The document of ``predict`` and that of ``explain`` are parts of it as they are, so that a page shows no other figure.
What needs a search is null where none is wanted, and the reason stands beside it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.cost.operators.price_plans import program_prices
from meshwright.cost.operators.program_passes import pass_parts
from meshwright.errors import InfeasibleError, InputError
from meshwright.explanation.breakdown import CostBreakdown
from meshwright.explanation.cluster_resources import rates, work
from meshwright.explanation.device_count_changes import changed_device_counts
from meshwright.explanation.explain_plan import explained
from meshwright.explanation.explanation_result import SEARCHED, changes_json, public_explanation
from meshwright.explanation.plan_difference import ExplainedPlan
from meshwright.explanation.plan_recommendation import same_question
from meshwright.explanation.report.comparison_rows import compared, plan_row
from meshwright.explanation.report.device_layout import device_layout
from meshwright.explanation.sensitivity import sensitivities
from meshwright.explanation.workload_tipping_points import changed_workloads
from meshwright.plans.resolve import Resolved
from meshwright.present.plan_answers.layout_text import plan_words
from meshwright.present.plan_answers.prediction import interval
from meshwright.program.lowering.lower_plan import lower
from meshwright.result import Report
from meshwright.simulate.memory_ledger import rank_ledger
from meshwright.simulate.plan_estimate import lower_and_simulate
from meshwright.simulate.step_timeline import memory_over_time, step_timeline
from meshwright.units import format_bytes, format_seconds
from meshwright.verbs.predict.predict_plan import check_playable
from meshwright.workload.workload import Workload

NOT_SEARCHED = "null: --no-search"
SEARCH_KEYS = (
    *("candidates_considered", "candidates_legal", "candidates_evaluated", "candidates_feasible"),
    *("candidates_tied", "optimal", "gap", "tie_ratio", "space", "rejected", "fastest"),
)
"""Keys of the document of ``plan`` that tell how far its search went."""
Progress = Callable[[str, float], None]
Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The subject of a report: a plan with its prediction, and the plans that it is compared with.

    ``name`` and the first of each of ``against`` are the files. ``search``: with the plans around it. ``found`` is the
    document of the search that the plan came from, if it came from one.
    """

    name: str
    resolved: Resolved
    report: Report
    against: Sequence[tuple[str, Resolved, Report]] = ()
    search: bool = True
    found: Mapping[str, Any] | None = None


def report_document(request: ReportRequest, progress: Progress) -> Data:
    """Return the document. Raises InputError for plans that do not compare, or that only minutes of playing price."""
    resolved, report = request.resolved, request.report
    rows = [plan_row(request.name, resolved, report)]
    rows += [row for row, _ in compared(resolved, request.against)]
    explanation = explained(resolved, progress).to_json() if request.search else _unsearched(resolved)
    progress("the step", 0.95)
    return {
        "title": f"{resolved.setting.model.name} on {resolved.setting.cluster.name}",
        "sentence": answer_sentence(rows[0]["plan"], resolved, report),
        "plan": rows[0]["plan"],
        "predict": report.to_json(),
        "explain": {
            key: value
            for key, value in explanation.items()
            if key not in ("plan", "predict", "pareto_memory", "against")
        },
        "against": rows if request.against else None,
        **_simulated(resolved),
        "pareto_memory": explanation["pareto_memory"],
        "pareto": None if request.found is None else _clusters(request.found),
        "search": _searched(request) if request.search else None,
        "searched": request.search,
    }


def answer_sentence(plan: Data, resolved: Resolved, report: Report) -> str:
    """Return the answer in one sentence: work, devices, layout, time with its interval, memory, and if it fits."""
    setting, data = resolved.setting, report.to_json()
    workload, memory = setting.workload, report.memory_bytes
    held = f"{format_bytes(memory['total'])} of {format_bytes(memory['usable'])} usable"
    probability = report.fits_probability
    likely = "" if probability is None else f" (probability {probability:.2f})"
    fits = f"fits{likely}" if report.fits else f"does not fit{likely}"
    return (
        f"A step of {setting.model.name} with {workload.global_batch:,} sequences of {workload.seq_len:,} tokens"
        f"{_encoder_words(workload)} on {setting.cluster.devices:,} × {setting.cluster.pool.device.id} with "
        f"{plan_words(plan)} is predicted to take {format_seconds(report.step_time_s)} ({interval(data)}), "
        f"{report.tokens_per_s:,.0f} tokens/s; the fullest device needs {held} and {fits}."
    )


def _encoder_words(workload: Workload) -> str:
    """Return what an encoder reads for each sequence, in words; empty without one."""
    images, tokens = workload.images, workload.encoder_tokens
    if images is not None:
        many = "1 image" if images.per_sequence == 1 else f"{images.per_sequence:,} images"
        return f", each with {many} of {images.tokens:,} patches,"
    return "" if tokens is None else f" and {tokens:,} for the encoder"


def _unsearched(resolved: Resolved) -> Data:
    """Return the explanation as far as the plan alone tells."""
    subject = ExplainedPlan.of(resolved)
    tried = {one.name: changed_workloads(subject, one) for one in work(subject.setting)}
    answers = tuple(sensitivities(subject, list(rates(subject.setting))))
    alone = changes_json(answers, tried, tuple(changed_device_counts(subject)))
    origin = {key: NOT_SEARCHED for key in SEARCHED if key not in alone}
    return public_explanation(CostBreakdown.of(subject), [], alone, None, origin)


def _simulated(resolved: Resolved) -> Data:
    """Return layout, timeline and memory over time; where a step is too long to play, only why."""
    setting = resolved.setting
    try:
        check_playable(resolved)
    except InputError as error:
        nouns = setting.model, setting.cluster, setting.workload, setting.stack
        program = lower(resolved.long, *nouns)
        why = "; ".join(problem.rule for problem in error.problems)
        layout = device_layout(program, setting.cluster)
        return {"layout": layout, "timeline": None, "memory_over_time": None, "not_simulated": why}
    program, simulation = lower_and_simulate(resolved.long, setting)
    ranks = range(program.pipeline_ranks)
    ledgers = [rank_ledger(program, rank, setting.cluster) for rank in ranks]
    return {
        "layout": device_layout(program, setting.cluster),
        "timeline": step_timeline(program, simulation, pass_parts(program, program_prices(program, setting))),
        "memory_over_time": memory_over_time(program, simulation, ledgers),
        "not_simulated": None,
    }


def _searched(request: ReportRequest) -> Data:
    """Return how far a search of the same question went, and the plan that it recommends."""
    if request.found is not None:
        return {key: request.found[key] for key in SEARCH_KEYS}
    try:
        found = same_question(request.resolved)
    except InfeasibleError as error:
        return {"error": error.message, "reasons": list(error.reasons), "suggestion": error.suggestion}
    data = found.to_json()
    return {key: data[key] for key in SEARCH_KEYS} | {"recommended": data["plans"][0]}


def _clusters(found: Mapping[str, Any]) -> list[Data] | None:
    """Return the Pareto set of several clusters in time, money and energy."""
    return list(found["pareto"]) if len(found["clusters"]) > 1 else None
