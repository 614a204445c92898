"""Write how far predictions are off, from runs that were left out of the fit.

    python scripts/write_error_parts.py RUNS.csv            prints the page
    python scripts/write_error_parts.py RUNS.csv --write    also writes the tables of the cost model and the page

Takes what every fit found from ``benchmarks/left-out-*.csv``, predicts what each left out, and writes
``error_parts.csv``, ``seen_runs.csv`` and ``memory_error.csv`` of ``cost/data`` and ``benchmarks/left-out.md``.
``fit_left_out.py`` makes the constants.
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple
from pathlib import Path

import numpy as np
from error_parts import Errors, Found, feature_parts, grouped, joined, pair_parts, parts_of, whole_sigma
from left_out_fits import FOLD, LEFT_OUT, Floats, LeftOut, left_out_under, weighted_quantiles
from left_out_page import left_out_page

from meshwright.calibration.observations import Observation
from meshwright.calibration.usable_runs import usable_runs
from meshwright.cost.uncertainty.constants_error import log_responses, middle_of
from meshwright.cost.uncertainty.error_parts import ErrorParts
from meshwright.cost.uncertainty.interval import QUANTILE
from meshwright.cost.uncertainty.plan_features import plan_features
from meshwright.cost.uncertainty.seen_runs import SCALES, RunKind, models, run_kind, scale_of
from meshwright.validation.predict_runs import predict_runs
from meshwright.validation.read_run_table import Run, read_runs

GIB = 2**30
MANY = 30
"""So many runs of a kind have an error of their own."""
ROOT = Path(__file__).parent.parent
DATA = ROOT / "src" / "meshwright" / "cost" / "data"
PAGE = ROOT / "benchmarks" / "left-out.md"
UNSEEN = "log-sigmas of measured/predicted; each source left out of the fit"
SEEN = "log-sigmas of measured/predicted; one of five folds of each source's groups left out of the fit"
PART_COLUMNS = ("of", "stack", "group", "run", "quantile", "runs", "sources", "origin")
KIND_COLUMNS = ("stack", "kernels", "models", "precision", "runs")
SEEN_COLUMNS = (
    *KIND_COLUMNS,
    *(f"{end}_{name}" for end in ("least", "most") for name in SCALES),
    "sigma",
)


def read_left_out(observations: Sequence[Observation]) -> list[LeftOut]:
    """Predict everything that a fit left out, with that fit's constants."""
    return [left_out_under(name, fitted, observations) for name, fitted in LEFT_OUT.read().items()]


def found_in(left: Iterable[LeftOut]) -> list[Found]:
    """Return the observations of several fits with their errors, and the spread that the fits' doubt gives them."""
    asked = [(one, o, e) for one in left for o, e in zip(one.observations, one.errors, strict=True)]
    with ProcessPoolExecutor() as processes:
        return list(processes.map(_found, *zip(*asked, strict=True), chunksize=8))


def _found(left: LeftOut, observation: Observation, errors: Floats) -> Found:
    """Return an observation with the spread of the side on which its measured times lie."""
    responses = log_responses(observation.plans, observation.setting, left.constants.draws)
    low, high = middle_of(responses)
    return Found(observation, errors, np.where(errors < 0, high, -low) / QUANTILE, responses)


def part_rows(unseen: Sequence[Found], seen: Sequence[Found]) -> Iterator[tuple[object, ...]]:
    """The rows of ``error_parts.csv``."""
    for found, how, origin in ((seen, "seen", SEEN), (unseen, "unseen", UNSEEN)):
        for of in ("dense", "experts"):
            yield _row(f"{of} {how}", parts_of(grouped(found, of), how == "seen"), origin)
        yield _row(f"pair {how}", pair_parts(found), f"{origin}; of ratios of two runs in one setting")
        yield _row(f"feature {how}", feature_parts(found), f"{origin}; of a feature that one of two runs has")


def _row(of: str, parts: ErrorParts, origin: str) -> tuple[object, ...]:
    numbers = (f"{value:.4f}" for value in (parts.stack, parts.group, parts.run))
    return of, *numbers, f"{parts.quantile:.4f}", parts.runs, parts.sources, origin


def feature_rows(seen: Sequence[Found]) -> Iterator[tuple[object, ...]]:
    """The rows of ``seen_features.csv``: every feature that runs of a stack have, and in how many."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in seen:
        setting, plans = one.observation.setting, one.observation.plans
        for name, mask in plan_features(plans, setting).items():
            counts[setting.stack.name, name] += int(mask.sum())
    return ((*key, count) for key, count in sorted(counts.items()))


def seen_rows(seen: Sequence[Found]) -> Iterator[tuple[object, ...]]:
    """The rows of ``seen_runs.csv``: every kind of run, and the range of all stacks together."""
    kinds: dict[RunKind, list[Found]] = {}
    for one in seen:
        setting = one.observation.setting
        for kind in (run_kind(setting), RunKind("any", "any", models(setting), "any")):
            kinds.setdefault(kind, []).append(one)
    for kind, found in sorted(kinds.items()):
        errors = joined([Errors(one.errors, one.constants) for one in found])
        scales = np.array([astuple(scale_of(one.observation.setting)) for one in found])
        ends = (f"{value:g}" for value in (*scales.min(0), *scales.max(0)))
        is_known = kind.stack != "any" and len(errors) >= MANY
        yield *kind, len(errors), *ends, f"{whole_sigma({'': [errors]}):.4f}" if is_known else ""


def memory_row(runs: Sequence[Run]) -> tuple[object, ...]:
    """80 % of measured/predicted peaks of memory, every source with the same weight; nothing is fitted to them."""
    peaks = predict_runs(runs, intervals=False).memory_bytes / GIB
    errors: dict[str, list[float]] = {}
    for run, peak in zip(runs, peaks, strict=True):
        if run.memory_gib and peak > 0:
            errors.setdefault(run.source, []).append(float(np.log(run.memory_gib / peak)))
    low, high = np.exp(_quantiles(errors, (0.1, 0.9)))
    origin = "quantiles of measured/predicted of published peaks; nothing is fitted to them"
    return f"{low:.3f}", f"{high:.3f}", sum(map(len, errors.values())), len(errors), origin


def _quantiles(errors: Mapping[str, Sequence[float]], shares: Sequence[float]) -> list[float]:
    values = np.concatenate([np.array(e) for e in errors.values()])
    weights = np.concatenate([np.full(len(e), 1 / len(e)) for e in errors.values()])
    return weighted_quantiles(values, weights, shares)


def write_rows(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write rows as CSV."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines, lineterminator="\n").writerows(rows)


def main(path: str, options: Sequence[str]) -> None:
    """Print the page, and write it and the tables where asked."""
    runs = [run for run in read_runs(path) if isinstance(run, Run)]
    left = read_left_out(usable_runs(runs).observations)
    sources = [one for one in left if not one.name.startswith(FOLD)]
    unseen, seen = found_in(sources), found_in(one for one in left if one.name.startswith(FOLD))
    text = left_out_page(unseen, seen)
    print(text)
    if "--write" in options:
        PAGE.write_text(text, encoding="utf-8")
        write_rows(DATA / "error_parts.csv", [PART_COLUMNS, *part_rows(unseen, seen)])
        write_rows(DATA / "seen_runs.csv", [SEEN_COLUMNS, *seen_rows(seen)])
        write_rows(DATA / "seen_features.csv", [("stack", "feature", "runs"), *feature_rows(seen)])
        write_rows(
            DATA / "memory_error.csv", [("low", "high", "runs", "sources", "origin"), memory_row(runs)]
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
