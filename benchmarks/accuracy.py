"""Validate published runs and write the page of their errors.

    python benchmarks/accuracy.py RUNS.csv            prints the page
    python benchmarks/accuracy.py RUNS.csv --write    also writes benchmarks/accuracy.md

The table of runs is not part of the repository; the page names where each of them was published.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from meshwright import __version__, api
from meshwright.present.console import percent
from meshwright.validation.error_summary import blind_mfu
from meshwright.validation.read_run_table import Run
from meshwright.validation.run_plan import run_plan
from meshwright.validation.validate_runs import Validation

WORST_OF_A_SOURCE = 3
Figures = Mapping[str, Any]


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; the first column is left, the others right aligned."""
    names = list(header)
    lines = [names, ["---", *["--:"] * (len(names) - 1)]]
    lines += [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def signed(value: float | None) -> str:
    """A fraction in percent with its sign."""
    return "–" if value is None else f"{value:+.1%}"


def _section(
    summary: Mapping[str, Figures], name: str, columns: Mapping[str, tuple[str, Callable[[Any], str]]]
) -> str:
    """One line per source that has anything in this section."""
    key = "groups" if name == "ranking" else "n"
    rows = (
        (source, *(show(figures[name][column]) for column, show in columns.values()))
        for source, figures in summary.items()
        if figures[name][key]
    )
    return table(["source", *columns], rows)


def step_time(summary: Mapping[str, Figures]) -> str:
    """Errors of step time and of the two baselines."""
    columns = {
        "runs": ("n", str),
        "MAPE": ("mape", percent),
        "median": ("median_ape", percent),
        "bias": ("bias", signed),
        "p90": ("p90_ape", percent),
        "in 80 % interval": ("interval_coverage", percent),
        "own MFU": ("own_mfu_mape", percent),
        "blind MFU": ("blind_mfu_mape", percent),
    }
    return _section(summary, "step_time", columns)


def ranking(summary: Mapping[str, Figures]) -> str:
    """How well plans are told apart."""
    columns = {
        "groups": ("groups", str),
        "Spearman": ("spearman_median", lambda x: "–" if x is None else f"{x:.2f}"),
        "pairs": ("pairs", str),
        "right": ("pairs_right", percent),
        "regret": ("regret_mean", percent),
        "largest": ("regret_max", percent),
        "best of 3": ("best_of_3_regret_mean", percent),
    }
    return _section(summary, "ranking", columns)


def memory(summary: Mapping[str, Figures]) -> str:
    """Errors of peak memory."""
    return _section(
        summary, "memory", {"runs": ("n", str), "MAPE": ("mape", percent), "bias": ("bias", signed)}
    )


def fits(summary: Mapping[str, Figures]) -> str:
    """Whether "fits" is what happened."""
    columns = {
        "runs": ("n", str),
        "right": ("accuracy", percent),
        "oom called fit": ("oom_called_fit", percent),
        "fit called oom": ("fit_called_oom", percent),
    }
    return _section(summary, "fits", columns)


def coverage(summary: Mapping[str, Figures]) -> str:
    """How many of the runs are predicted."""
    rows = ((name, f["rows"], f["predicted"], percent(f["coverage"])) for name, f in summary.items())
    return table(["source", "rows", "predicted", "coverage"], rows)


def worst(found: Validation) -> str:
    """The runs with the largest errors of every source, by the logarithm of predicted/measured."""
    measured = np.array([run.step_time_s or np.nan for run in found.runs])
    ratio = found.predicted.step_s / measured
    scored = np.flatnonzero(np.isfinite(ratio))
    left = dict.fromkeys(found.summary, WORST_OF_A_SOURCE)
    rows = []
    for number in scored[np.argsort(-np.abs(np.log(ratio[scored])), kind="stable")].tolist():
        run = found.runs[number]
        if left[run.source]:
            left[run.source] -= 1
            seconds = (f"{run.step_time_s:.3g}", f"{found.predicted.step_s[number]:.3g}")
            rows.append((run.source, *_described(run), *seconds, signed(ratio[number] - 1)))
    order = list(found.summary)
    rows.sort(key=lambda row: order.index(row[0]))
    return table(["source", "model", "devices", "plan", "measured s", "predicted s", "error"], rows)


def _described(run: Run) -> tuple[str | None, str, str]:
    """Model, devices and plan of a run in a few words."""
    plan = run_plan(run.chosen, run.given.devices)
    degrees = ("pp", "tp", "cp", "dp_replicate", "dp_shard", "ep")
    words = [f"{name} {getattr(plan, name)}" for name in degrees if getattr(plan, name) > 1]
    words += [
        f"micro-batch {plan.micro_batch}",
        f"batch {run.given.global_batch}",
        f"seq {run.given.seq_len}",
    ]
    words += [plan.schedule] if plan.pp > 1 else []
    return run.given.model, f"{run.given.device} x {run.given.devices}", ", ".join(words)


def skipped(found: Validation) -> str:
    """What was not predicted."""
    return table(["reason", "runs"], found.reasons().items())


def page(found: Validation) -> str:
    """The page that is kept under ``benchmarks/``."""
    summary = found.summary
    return f"""# Accuracy

Published, measured training runs beside what `meshwright validate` says of them; nothing here was run by us. Predicted
by version {__version__} on {date.today().isoformat()}; the figures are defined in [accuracy](../docs/accuracy.md).
Made by `python benchmarks/accuracy.py RUNS.csv --write` from a table of these runs, which was put together from the
sources named below and is not part of the repository.

Constants of the cost model were fitted on these very runs, and the blind utilisations ({len(blind_mfu())} of them, by
device and precision) are their medians: this is how well the model describes what it has seen, not a blind test.

## Coverage

{coverage(summary)}
## Step time

Errors of predicted/measured. Beside them those of a constant utilisation: *own MFU* is fitted on the rows that it is
scored on, one per source, device and precision, so that this very error is least; *blind MFU* is the median per device
and precision of all runs.

{step_time(summary)}
## Ranking

Groups of at least four runs that differ only in their plan; regret is what the recommended plan
([search](../docs/search.md#the-recommended-plan)) costs over the measured best.

{ranking(summary)}
## Memory

{memory(summary)}
## Fits

All published runs that have a time did fit.

{fits(summary)}
## Largest errors

The {WORST_OF_A_SOURCE} largest of every source.

{worst(found)}
## Not predicted

{skipped(found)}"""


if __name__ == "__main__":
    text = page(api.validate(sys.argv[1]))
    print(text)
    if "--write" in sys.argv[2:]:
        (Path(__file__).parent / "accuracy.md").write_text(text, encoding="utf-8")
