"""Fit the cost model's constants to a table of measured runs and write them where they live.

    python scripts/fit_constants.py RUNS.csv               prints errors before and after, and the constants
    python scripts/fit_constants.py RUNS.csv --left-out    also errors with each source left out of the fit
    python scripts/fit_constants.py RUNS.csv --write       rewrites constants.csv, kernels.csv and the stacks' files

Takes minutes: some fifty constants, each moved for a numerical derivative.
"""

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path

import numpy as np
from leave_one_source_out import (
    Floats,
    LeftOutSource,
    leave_one_source_out,
    parameters_for,
    weighted_quantiles,
)
from pass_profiles import PassProfile, profiles_of, read_notes

from meshwright.calibration.fit import fit
from meshwright.calibration.fitted_parameters import priors
from meshwright.calibration.observations import Observation, kernel_family
from meshwright.calibration.usable_runs import usable_runs
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.validation.predict_runs import predict_runs
from meshwright.validation.read_run_table import Run, read_runs

GIB = 2**30
MANY = 30
"""So many runs of a stack on a kind of device have an interval of their own."""
PACKAGE = Path(__file__).parent.parent / "src" / "meshwright"
TARGETS = dict.fromkeys(
    ("Megatron-LM", "Korthikanti", "Zero Bubble", "Vocabulary ", "MosaicML ll", "SimuMax B20"), "9 %"
)
ZERO3 = SHARDINGS.index("zero3")
TARGETS |= {"InternEvo t": "12 %", "Megatron-Br": "20 %"}
"""What we aim at, by the beginning of a source's name."""
COLUMNS = {
    "attention_efficiency.flash": "flash_efficiency",
    "attention_efficiency.flash3": "flash3_efficiency",
}


def show(label: str, source: str, errors: Floats) -> None:
    """One line of a source's errors."""
    ratio = np.exp(errors)
    mape, bias = np.abs(ratio - 1).mean(), np.exp(errors.mean()) - 1
    print(f"{label:10} {source:52} n {len(errors):4} MAPE {mape:6.1%} bias {bias:+6.1%}", flush=True)


def show_passes(label: str, profiles: list[PassProfile], values: Mapping[str, float]) -> None:
    """One line for each pass that was timed by itself."""
    errors = np.array([profile.log_errors(values) for profile in profiles]).reshape(-1, 3)
    for name, of_pass in zip(("forward", "input gradient", "weight gradient"), errors.T, strict=True):
        show(label, f"profiled: {name}", of_pass)


def by_source(observations: list[Observation], values: Mapping[str, float]) -> dict[str, Floats]:
    """log errors of every source."""
    found: dict[str, list[float]] = {}
    for observation in observations:
        for source, error in zip(observation.sources, observation.log_errors(values), strict=True):
            found.setdefault(source, []).append(float(error))
    return {source: np.array(errors) for source, errors in sorted(found.items())}


def left_out_page(left: list[LeftOutSource]) -> str:
    """The page that is kept under ``benchmarks/``."""
    held = held_by_the_others(left)
    lines = [
        "| source | runs | MAPE | bias | target | in the others' interval |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for one in left:
        errors, target = np.concatenate(one.errors), TARGETS.get(one.source[:11])
        lines.append(_left_out_line(one.source, errors, target, f"{held[one.source]:.0%}"))
        whole = [e[o.plans.sharding != ZERO3] for o, e in zip(one.observations, one.errors, strict=True)]
        kept = np.concatenate(whole)
        if one.source.startswith("Megatron-LM") and len(kept) > 0:
            lines.append(_left_out_line(f"{one.source}, without ZeRO-3", kept, TARGETS["Megatron-LM"], "–"))
    return (
        f"""# Each source left out

Step times of published runs, predicted with constants that were fitted to all the other sources: what a new cluster
and stack would find. Every fit begins at the priors of `calibration/priors.csv`, and what only the left-out source
could teach (its stack's numbers, its devices' efficiencies) stays at its prior. The priors of four constants know a
little of published runs, as their origins say: messages inside a node, grouped products, sharded communication and host
time; the figures are that much too good where those matter.
The passes that were timed beside Zero Bubble's steps are fitted with them and left out with them.
Fitted on {date.today().isoformat()} by `python scripts/fit_constants.py RUNS.csv --left-out --write`;
the constants of each
fit are in [left-out-constants.csv](left-out-constants.csv). In-sample errors of the same runs are in
[accuracy](accuracy.md). The last column is the share of a source's runs inside the 80 % interval that all other
sources' left-out errors give; its mean over the sources is {np.mean(list(held.values())):.0%}.

"""
        + "\n".join(lines)
        + "\n"
    )


def held_by_the_others(left: list[LeftOutSource]) -> dict[str, float]:
    """How many of a source's runs lie inside the 80 % interval of the other sources' left-out errors."""
    errors = {one.source: -np.concatenate(one.errors) for one in left}
    held = {}
    for source, mine in errors.items():
        others = {name: found.tolist() for name, found in errors.items() if name != source}
        low, high, *_ = _quantiles(others, (0.1, 0.9))
        held[source] = float(((np.log(float(low)) <= mine) & (mine <= np.log(float(high)))).mean())
    return held


def _left_out_line(name: str, errors: Floats, target: str | None, held: str) -> str:
    ape, bias = np.abs(np.exp(errors) - 1), np.exp(errors.mean()) - 1
    return f"| {name} | {len(ape)} | {ape.mean():.1%} | {bias:+.1%} | {target or '–'} | {held} |"


def write(values: Mapping[str, float]) -> None:
    """Put every value where the cost model reads it."""
    table = PACKAGE / "cost/data/constants.csv"
    _write_table(table, lambda row: values.get(row["name"]), "value")
    _write_table(table, lambda row: _fitted_origin(row["name"]) if row["name"] in values else None, "origin")
    for column_of, column in [("gemm_efficiency", "gemm_efficiency"), *COLUMNS.items()]:
        _write_table(
            PACKAGE / "cost/data/kernels.csv",
            lambda row, name=column_of: values.get(f"{row['device']}:{name}"),
            column,
        )
    for name, value in values.items():
        if "/" in name:
            stack, field = name.split("/")
            (path,) = (PACKAGE / "stack/files").glob(f"{stack}-[0-9s v]*.yaml")
            text = path.read_text(encoding="utf-8")
            text, found = re.subn(rf"(?m)^{field}:\s*\S+", f"{field}: {value:.4g}", text)
            path.write_text(text if found else f"{text.rstrip()}\n{field}: {value:.4g}\n", encoding="utf-8")


INTERVAL_COLUMNS = ("of", "low", "high", "runs", "sources", "origin")


Row = tuple[str, str, str, int, int, str]
Found = list[tuple[str, Observation, Floats]]
"""Sources, observations and log(predicted/measured) of their runs."""


def quantile_rows(found: Found, how: str, origin: str) -> Iterator[Row]:
    """80 % of measured/predicted of runs, and of ratios of two runs in one setting.

    Every source has the same weight. A ratio's error counts whichever run comes first.
    """
    kinds: dict[str, dict[str, list[float]]] = {"dense": {}, "experts": {}, "pair": {}}
    for source, observation, errors in found:
        models = "dense" if observation.setting.model.architecture.moe is None else "experts"
        kinds[models].setdefault(source, []).extend((-errors).tolist())
        first, second = np.triu_indices(len(errors), 1)
        if len(first):
            differences = errors[first] - errors[second]
            kinds["pair"].setdefault(source, []).extend([*differences, *-differences])
    for kind, of_sources in kinds.items():
        yield (
            f"{kind} {how}",
            *_quantiles(of_sources, (0.1, 0.9)),
            f"quantiles of measured/predicted; {origin}",
        )


def seen_rows(known: Found) -> Iterator[tuple[str, str, int, str, str]]:
    """The stacks and kernel families of the runs that are fitted, with their number and, if many, their interval."""
    errors: dict[tuple[str, str], list[float]] = {}
    for _, observation, found in known:
        key = observation.setting.stack.name, kernel_family(observation.setting)
        errors.setdefault(key, []).extend((-found).tolist())
    for (stack, family), of_stack in sorted(errors.items()):
        own = _quantiles({stack: of_stack}, (0.1, 0.9))[:2] if len(of_stack) >= MANY else ("", "")
        yield stack, family, len(of_stack), *own


def _quantiles(errors: Mapping[str, list[float]], shares: tuple[float, float]) -> tuple[str, str, int, int]:
    """Quantiles of exp(error) with equal weight per source, the number of errors and of sources."""
    values = np.concatenate([np.array(e) for e in errors.values()])
    weights = np.concatenate([np.full(len(e), 1 / len(e)) for e in errors.values()])
    low, high = np.exp(weighted_quantiles(values, weights, shares))
    return f"{low:.3f}", f"{high:.3f}", len(values), len(errors)


def memory_row(runs: list[Run]) -> Row:
    """80 % of measured/predicted peaks of memory, every source with the same weight; nothing is fitted to them."""
    peaks = predict_runs(runs).memory_bytes / GIB
    errors: dict[str, list[float]] = {}
    for run, peak in zip(runs, peaks, strict=True):
        if run.memory_gib and peak > 0:
            errors.setdefault(run.source, []).append(float(np.log(run.memory_gib / peak)))
    origin = "quantiles of measured/predicted of published peaks; nothing is fitted to them"
    return "memory", *_quantiles(errors, (0.1, 0.9)), origin


def _fitted_origin(name: str) -> str:
    prior = priors()[name]
    fitted = f"fitted to published training runs by scripts/fit_constants.py ({date.today().isoformat()})"
    return f"{fitted}; prior: {prior.value:g}, {prior.origin}"


def _write_table(path: Path, value_of, column: str) -> None:  # type: ignore[no-untyped-def]
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    for row in rows:
        value = value_of(row)
        if value is not None:
            row[column] = value if isinstance(value, str) else f"{value:.4g}"
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def main(path: str, options: list[str]) -> None:
    """Fit, print, and write where asked."""
    runs = [run for run in read_runs(path) if isinstance(run, Run)]
    observations = usable_runs(runs).observations
    for source, errors in by_source(observations, {}).items():
        show("now", source, errors)
    profiles = profiles_of(runs, read_notes(path))
    parameters = parameters_for(observations)
    show_passes("now", profiles, {})
    fitted = fit(
        [*observations, *profiles],
        parameters,
        lambda i, value: print(f"  iteration {i}: {value:.1f}", flush=True),
    )
    for source, errors in by_source(observations, fitted.values).items():
        show("fitted", source, errors)
    show_passes("fitted", profiles, fitted.values)
    for p in parameters:
        ratio = fitted.values[p.name] / p.value
        print(
            f"  {p.name:48} {p.value:10.4g} → {fitted.values[p.name]:10.4g} ×{ratio:.2f} ±{fitted.widths[p.name]:.2f}"
        )
    if "--write" in options:
        write(fitted.values)
    if "--left-out" in options:
        left = leave_one_source_out(
            observations,
            lambda one: show("left out", one.source, np.concatenate(one.errors)),
            profiles,
        )
        unseen = [(o.source, run, e) for o in left for run, e in zip(o.observations, o.errors, strict=True)]
        known = [(o.sources[0], o, o.log_errors(fitted.values)) for o in observations]
        rows = [
            *quantile_rows(known, "seen", "what the fit leaves"),
            *quantile_rows(unseen, "unseen", "each source left out of the fit"),
            memory_row(runs),
        ]
        print("\n".join(",".join(map(str, row)) for row in rows))
        if "--write" in options:
            _write_rows(PACKAGE / "cost/data/intervals.csv", [INTERVAL_COLUMNS, *rows])
            seen = [("stack", "kernels", "runs", "low", "high"), *seen_rows(known)]
            _write_rows(PACKAGE / "cost/data/seen.csv", seen)
            benchmarks = PACKAGE.parents[1] / "benchmarks"
            benchmarks.joinpath("left-out.md").write_text(left_out_page(left), encoding="utf-8")
            constants = [(o.source, name, f"{value:.5g}") for o in left for name, value in o.values.items()]
            _write_rows(benchmarks / "left-out-constants.csv", [("source", "constant", "value"), *constants])


def _write_rows(path: Path, rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
