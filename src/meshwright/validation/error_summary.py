"""Summarise a validation: per source and for all, errors with two baselines, ranking, memory, fit.

``own_mfu`` predicts with one utilisation per (source, device, precision), the one with the least MAPE on the very rows
that it is scored on; ``blind_mfu`` with the median per (device, precision) of the calibration runs
(``validation/data/blind_mfu.csv``), null if there is none. A ranking group is all rows with equal
source, model, device, devices, seq_len and global_batch that have a prediction and a measured time, at least 4 of
them; what is chosen of it follows the recommendation of ``plan``. Fractions, not percent; null if there is nothing to
average.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.units import GIB
from meshwright.validation import error_metrics
from meshwright.validation.predict_runs import Predictions
from meshwright.validation.read_run_table import Run

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Recommended = Callable[[Ints], Ints]
"""Returns rows in the order in which they are recommended."""

ALL = "all"
MIN_GROUP = 4


@dataclass(frozen=True)
class Ranking:
    """Figures of one group."""

    spearman: float | None
    right: int
    counted: int
    regret: float
    best_of_3_regret: float


@dataclass(frozen=True)
class Table:
    """Columns of the runs that were read, aligned with the predictions; NaN if nothing was measured."""

    sources: tuple[str, ...]
    source: Ints
    measured_s: Floats
    measured_bytes: Floats
    oom: NDArray[np.bool_]
    own_s: Floats
    blind_s: Floats
    predicted: Predictions
    groups: tuple[tuple[int, Ranking], ...]


def summarise(
    runs: Sequence[Run], predicted: Predictions, lines: dict[str, int], recommended: Recommended | None = None
) -> dict[str, Any]:
    """Return the summary by source, then ``all``. ``lines`` counts the rows of every source, skipped ones too.

    ``recommended`` puts rows of a ranking group in the order in which they would be chosen: by predicted time, if
    nothing else is said.
    """
    table = _table(runs, predicted, tuple(lines), recommended or (lambda rows: _by_time(predicted, rows)))
    every = np.arange(len(runs), dtype=np.int64)
    by_source = np.argsort(table.source, kind="stable")
    edges = np.searchsorted(table.source[by_source], np.arange(len(lines) + 1))
    summary = {
        name: _of(
            table, by_source[edges[i] : edges[i + 1]], lines[name], [g for s, g in table.groups if s == i]
        )
        for i, name in enumerate(table.sources)
    }
    return {**summary, ALL: _of(table, every, sum(lines.values()), [g for _, g in table.groups])}


def _by_time(predicted: Predictions, rows: Ints) -> Ints:
    return rows[np.argsort(predicted.step_s[rows], kind="stable")]


def _table(
    runs: Sequence[Run], predicted: Predictions, sources: tuple[str, ...], recommended: Recommended
) -> Table:
    number = {name: i for i, name in enumerate(sources)}
    source = np.array([number[run.source] for run in runs], dtype=np.int64)
    measured = np.array([run.step_time_s or np.nan for run in runs], dtype=np.float64)
    utilisation = predicted.ideal_s / measured
    own, blind = np.full(len(runs), np.nan), np.full(len(runs), np.nan)
    scored = predicted.made & np.isfinite(utilisation)
    kinds = [(run.source, run.given.device, run.given.precision or "bf16") for run in runs]
    for kind, rows in _equal(kinds, scored):
        own[rows] = predicted.ideal_s[rows] / error_metrics.fitted_utilisation(utilisation[rows])
        blind[rows] = predicted.ideal_s[rows] / blind_mfu().get(kind[1:], np.nan)
    return Table(
        sources=sources,
        source=source,
        measured_s=measured,
        measured_bytes=np.array([run.memory_gib or np.nan for run in runs], dtype=np.float64) * GIB,
        oom=np.array([run.outcome == "oom" for run in runs], dtype=np.bool_),
        own_s=own,
        blind_s=blind,
        predicted=predicted,
        groups=tuple(_rankings(runs, measured, predicted, source, recommended)),
    )


def _rankings(
    runs: Sequence[Run], measured: Floats, predicted: Predictions, source: Ints, recommended: Recommended
) -> Iterable[tuple[int, Ranking]]:
    givens = [(run.source, run.given) for run in runs]
    keys = [(s, g.model, g.device, g.devices, g.seq_len, g.global_batch) for s, g in givens]
    for _, rows in _equal(keys, predicted.made & np.isfinite(measured)):
        if len(rows) >= MIN_GROUP:
            m, p = measured[rows], predicted.step_s[rows]
            right, counted = error_metrics.ordered_pairs(m, p)
            chosen = measured[recommended(rows)]
            figures = (error_metrics.regret(chosen), error_metrics.regret(chosen, error_metrics.BEST))
            yield int(source[rows[0]]), Ranking(error_metrics.spearman(m, p), right, counted, *figures)


def _equal(keys: Sequence[Any], selected: NDArray[np.bool_]) -> Iterable[tuple[Any, Ints]]:
    """Yield rows of equal keys among the wanted ones."""
    found: dict[Any, list[int]] = {}
    for row in np.flatnonzero(selected).tolist():
        found.setdefault(keys[row], []).append(row)
    for key, rows in found.items():
        yield key, np.array(rows, dtype=np.int64)


def _of(table: Table, rows: Ints, lines: int, groups: list[Ranking]) -> dict[str, Any]:
    """Return the summary of some rows of the table; ``lines`` were in the file."""
    made = rows[table.predicted.made[rows]]
    return {
        "rows": lines,
        "predicted": len(made),
        "coverage": len(made) / lines if lines else None,
        "step_time": _step_time(table, made),
        "ranking": _ranking(groups),
        "memory": _memory(table, made),
        "fits": _fits(table, made),
    }


def _step_time(table: Table, made: Ints) -> dict[str, Any]:
    rows = made[np.isfinite(table.measured_s[made])]
    measured, predicted = table.measured_s[rows], table.predicted
    blind = rows[np.isfinite(table.blind_s[rows])]
    return {
        **error_metrics.error_figures(
            predicted.step_s[rows], predicted.low_s[rows], predicted.high_s[rows], measured
        ),
        "own_mfu_mape": error_metrics.mape(table.own_s[rows] / measured) if len(rows) else None,
        "blind_mfu_mape": error_metrics.mape(table.blind_s[blind] / table.measured_s[blind])
        if len(blind)
        else None,
        "blind_mfu_n": len(blind),
    }


def _ranking(groups: list[Ranking]) -> dict[str, Any]:
    correlations = [group.spearman for group in groups if group.spearman is not None]
    regrets = [group.regret for group in groups]
    counted = sum(group.counted for group in groups)
    return {
        "groups": len(groups),
        "spearman_median": float(np.median(correlations)) if correlations else None,
        "pairs": counted,
        "pairs_right": sum(group.right for group in groups) / counted if counted else None,
        "regret_mean": float(np.mean(regrets)) if regrets else None,
        "regret_max": max(regrets) if regrets else None,
        "best_of_3_regret_mean": float(np.mean([g.best_of_3_regret for g in groups])) if groups else None,
    }


def _memory(table: Table, made: Ints) -> dict[str, Any]:
    rows = made[np.isfinite(table.measured_bytes[made])]
    ratio = table.predicted.memory_bytes[rows] / table.measured_bytes[rows]
    return {
        "n": len(rows),
        "mape": error_metrics.mape(ratio) if len(rows) else None,
        "bias": error_metrics.bias(ratio) if len(rows) else None,
    }


def _fits(table: Table, made: Ints) -> dict[str, Any]:
    """Return the share of out-of-memory runs that were predicted to fit, and the reverse."""
    fits, oom = table.predicted.fits[made], table.oom[made]
    return {
        "n": len(made),
        "accuracy": float((fits != oom).mean()) if len(made) else None,
        "oom_called_fit": float(fits[oom].mean()) if oom.any() else None,
        "fit_called_oom": float((~fits[~oom]).mean()) if (~oom).any() else None,
    }


@cache
def blind_mfu() -> dict[tuple[str, str], float]:
    """Return the median utilisation of the calibration runs by device and precision."""
    text = files("meshwright.validation").joinpath("data", "blind_mfu.csv").read_text(encoding="utf-8")
    return {(row["device"], row["precision"]): float(row["mfu"]) for row in csv.DictReader(text.splitlines())}
