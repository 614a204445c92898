"""Plans that experts published beside the best that a search finds for the same question, and why they differ.

python benchmarks/expert_plans.py            prints the page; two minutes of CPU time
python benchmarks/expert_plans.py --write    writes benchmarks/expert-plans.md

Both plans are predicted, for the same model, batch, sequence, devices and stack. Reasons are those of
``meshwright explain PUBLISHED --against OURS``.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from statistics import median

from expert_cases import Best, Case, best_of, cases

from meshwright import __version__
from meshwright.explanation.plan_comparison import PlanComparison, compare_plans
from meshwright.explanation.plan_difference import in_words
from meshwright.explanation.prediction_parts import is_tie
from meshwright.plans.forms.conversion import short_of_only_layout
from meshwright.plans.resolve import Resolved
from meshwright.result import Report
from meshwright.units import GIB, format_bytes
from meshwright.verbs.predict.predict_plan import predicted

ILLEGAL, UNFIT, QUICKER, TIE, SLOWER = "illegal", "does not fit", "quicker", "a tie", "slower"
VERDICTS = {
    QUICKER: "our plan is quicker by more than two predictions can be wrong against each other",
    TIE: "the two are inside that interval: nobody should say that ours is better",
    SLOWER: "the published plan is quicker by more than that",
    UNFIT: "the published plan does not fit by our ledger, whatever its time",
    ILLEGAL: "the published plan breaks a rule of ours",
}
HEAD = (
    "| run | published layout | measured s | predicted s | MFU | GiB | our layout | predicted s | MFU | GiB | step "
    "| ours is |\n|---|---|--:|--:|--:|--:|---|--:|--:|--:|--:|---|"
)


@dataclass(frozen=True)
class Line:
    """A published plan beside the best one; ``against`` is None where the published one is illegal."""

    case: Case
    best: Best
    ours: Report
    theirs: Report | None
    against: PlanComparison | None

    @property
    def change(self) -> float | None:
        """Our step time over theirs, less one."""
        return self.theirs and self.ours.step_time_s / self.theirs.step_time_s - 1

    @property
    def verdict(self) -> str:
        """One of ``VERDICTS``."""
        if self.theirs is None or self.against is None:
            return ILLEGAL
        if not self.theirs.fits:
            return UNFIT
        own_s, other_s = self.theirs.step_time_s, self.ours.step_time_s
        if is_tie(own_s, other_s, self.against.difference.tie_ratio):
            return TIE
        return QUICKER if other_s < own_s else SLOWER


def line_of(case: Case) -> Line:
    """Search, predict and compare."""
    best = best_of(case)
    if isinstance(case.plan, str):
        return Line(case, best, predicted(best.plan), None, None)
    against = compare_plans(case.plan, best.plan, "ours")
    return Line(case, best, predicted(best.plan), predicted(case.plan), against)


def layout_in_words(plan: Resolved) -> str:
    """The choices of a plan, those left out that are one or none."""
    short = short_of_only_layout(plan.long)
    layout, pipeline = short.layout, short.pipeline
    chunks = f"×{pipeline.virtual_stages}" if pipeline.virtual_stages > 1 else ""
    rare = {name: getattr(layout, name) for name in ("cp", "ep", "etp")}
    recompute = short.recompute if isinstance(short.recompute, str) else " ".join(short.recompute)
    named = {"1f1b": "", "interleaved-1f1b": ""}
    told = [
        f"tp {layout.tp}" + (" without sp" if layout.tp > 1 and not layout.sequence_parallel else ""),
        f"pp {layout.pp}{chunks}",
        *(f"{name} {degree}" for name, degree in rare.items() if degree > 1),
        f"dp {layout.dp_replicate * layout.dp_shard}",
        "" if short.sharding == "none" else short.sharding,
        named.get(pipeline.choice.name, pipeline.choice.name),
        f"micro-batch {pipeline.micro_batch}",
        "" if recompute == "none" else f"recompute {recompute}",
    ]
    return ", ".join(part for part in told if part)


def row_of(line: Line) -> str:
    """A line of the table."""
    case, measured = line.case, line.case.run.step_time_s
    theirs = "illegal" if isinstance(case.plan, str) else layout_in_words(case.plan)
    cells = [
        case.run.run_id,
        theirs,
        "" if measured is None else f"{measured:.2f}",
        *_figures(line.theirs),
        layout_in_words(line.best.plan),
        *_figures(line.ours),
        "" if line.change is None else f"{line.change:+.1%}",
        line.verdict if line.verdict != UNFIT else "the one that fits",
    ]
    return f"| {' | '.join(cells)} |"


def _figures(report: Report | None) -> tuple[str, str, str]:
    if report is None:
        return "", "", ""
    return f"{report.step_time_s:.2f}", f"{report.mfu or 0:.1%}", f"{report.memory_bytes['total'] / GIB:.1f}"


def reason_of(line: Line) -> str:
    """Why the two differ, in the sentences of ``explain``."""
    case, said = line.case, []
    if isinstance(case.plan, str):
        said.append(f"The published plan is illegal: {case.plan}.")
    elif line.theirs is not None and line.against is not None:
        held = line.against.own.subject.forecast
        if not held.fits:
            peak, usable = format_bytes(held.total_bytes), format_bytes(held.usable_bytes)
            said.append(f"The published plan does not fit: {peak} > {usable} that are usable.")
        said += line.against.summary
    if line.best.beyond:
        said.append(f"The nearest plan that was searched: {in_words(line.best.beyond)}.")
    if case.note:
        said.append(f"Of the published run: {case.note}.")
    return f"- **{case.run.run_id}**. {' '.join(said)}"


def reasons(lines: list[Line]) -> Iterator[str]:
    """The reasons, source by source."""
    for source, of_source in groupby(lines, key=lambda line: line.case.run.source):
        yield f"### {source}\n"
        yield from map(reason_of, of_source)
        yield ""


def totals(lines: list[Line]) -> Iterator[str]:
    """How often ours is what, and what it gains where the published plan is legal and fits."""
    counts = Counter(line.verdict for line in lines)
    for name, meaning in VERDICTS.items():
        yield f"- {name}, {counts[name]} of {len(lines)}: {meaning}."
    alike = [line for line in lines if line.verdict in (QUICKER, TIE, SLOWER)]
    changes = [line.change for line in alike if line.change is not None]
    span = f"median {median(changes):+.1%}, from {min(changes):+.1%} to {max(changes):+.1%}"
    yield f"- Step of ours over the published plan's, where that fits: {span}."
    errors = [
        abs(line.theirs.step_time_s / line.case.run.step_time_s - 1)
        for line in lines
        if line.theirs is not None and line.case.run.step_time_s is not None
    ]
    yield f"- Predicted over measured step of the published plans: mean error {sum(errors) / len(errors):.1%}."


def habits(lines: list[Line]) -> Iterator[str]:
    """The choices in which ours differs, how often and which way, the most frequent first."""
    changed = [line.against.difference.changes for line in lines if line.against is not None]
    counts = Counter(name for changes in changed for name in changes)
    for name, count in counts.most_common():
        pairs = [changes[name] for changes in changed if name in changes]
        told = f"- {name}, {count} times"
        if all(isinstance(value, int) for pair in pairs for value in pair):
            more = sum(other > own for own, other in pairs)
            told += f": more in {more}, less in {count - more}"
        yield told + "."


def _with_cp(line: Line) -> bool:
    return (line.case.run.chosen.cp or 1) > 1


def page(lines: list[Line]) -> str:
    """The page that is kept under ``benchmarks/``."""
    return f"""# Plans of experts

Published plans (`benchmarks/expert-plans/runs.csv`) beside the best that `meshwright plan` finds for the same model,
batch, sequence, devices and stack. All times are predicted, by version {__version__} on {date.today().isoformat()},
except those in the column "measured"; what a search gains is a prediction too, and nobody has run it. Constants of
the model were fitted on published runs that include those of Megatron-LM (arXiv 2104.04473) and Megatron-Bridge.
Made by `python benchmarks/expert_plans.py --write`.

Ours beside the published plan:

{chr(10).join(totals(lines))}

"step" is our step time over the published plan's. A search has one recomputation for all layers, equal stages, and
schedules with closed forms; published plans that are made otherwise are told below, with the nearest one that it has.

{HEAD}
{chr(10).join(map(row_of, lines))}

## Differences of our plans

Of the choices of {sum(line.against is not None for line in lines)} published plans, ours has another value in:

{chr(10).join(habits(lines))}

A habit is a doubt about the cost model as much as about the experts: {sum(map(_with_cp, lines))} of the
published plans have cp > 1, so that few measured runs say what context parallelism costs.

## Why they differ

What `meshwright explain PUBLISHED --against OURS` says: what changes from the published plan to ours, what that does to
parts of the step, and at which change of a rate the order turns.

{chr(10).join(reasons(lines)).rstrip()}
"""


if __name__ == "__main__":
    text = page([line_of(case) for case in cases()])
    print(text)
    if "--write" in sys.argv:
        (Path(__file__).parent / "expert-plans.md").write_text(text, encoding="utf-8")
