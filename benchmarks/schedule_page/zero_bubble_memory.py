"""Peak memory of Zero Bubble's measured runs beside the cost model, and beside what lists alone can say.

Peaks were published as GB without decimals, one figure for all batches of a model and schedule.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from accuracy import signed, table
from compare_placements import most_activations

from meshwright.units import GIB
from schedule_page.order import within
from schedule_page.section import Section, Target
from schedule_page.zero_bubble_runs import WITHIN, Profiled, setting_key

ROUNDING_GB = 0.5
DECIMAL = GIB / 1e9
LOW, HIGH = "1f1b", "zb-h2"
"""The schedules with least and most memory of every model."""


def predicted(groups: Sequence[Sequence[Profiled]]) -> Section:
    """The cost model's peaks."""
    runs = [run for group in groups for run in group]
    measured, found = [peak_gb(run) for run in runs], [run.of.memory_gib for run in runs]
    binary, decimal = (within([gib * unit for gib in found], measured, WITHIN) for unit in (1, DECIMAL))
    header = ["model", "schedule", "M", "measured GB", "predicted GiB", "error", "error if GB are 1e9 bytes"]
    text = f"""\
Peak memory of the device that holds most: published, as GB without decimals, one figure for all batches;
beside it what the cost model predicts for each batch. *Error*: if GB are GiB. The paper does not say whether
they are; the authors' released code counts in decimal units (`torch.cuda.max_memory_allocated() // 1000000`
in `megatron/core/pipeline_parallel/zerobubble/runtime.py` of sail-sg/zero-bubble-pipeline-parallelism),
which speaks for 1e9 bytes.

Within {WITHIN:.0%}: {binary} if GB are GiB; {decimal} if they are 1e9 bytes. The cost model's `zb-h2` holds
what its lists for *its* stage times hold: where the last stage is slower than the others, more memory makes
them no shorter and they leave it free, while the authors' lists were made for stages that are alike.

{table(header, map(_predicted_row, by_schedule(runs)))}"""
    targets = []
    for name, unit in (("GiB", 1.0), ("1e9 bytes", DECIMAL)):
        inside = sum(abs(gib * unit / gb - 1) <= WITHIN for gib, gb in zip(found, measured, strict=True))
        what = f"peaks of Zero Bubble's runs within {WITHIN:.0%}, GB taken as {name}"
        targets.append(Target(what, f"{len(runs)}", f"{inside} of {len(runs)}", inside == len(runs)))
    return Section("Zero Bubble's runs: memory", text, tuple(targets))


def _predicted_row(runs: Sequence[Profiled]) -> list[object]:
    peak, found = peak_gb(runs[0]), [run.of.memory_gib for run in runs]
    errors = [_each(signed(gib * unit / peak - 1) for gib in found) for unit in (1, DECIMAL)]
    return [*_names(runs), f"{peak:g}", _each(f"{gib:.1f}" for gib in found), *errors]


def of_lists(groups: Sequence[Sequence[Profiled]]) -> Section:
    """Where schedules stand between the one with least and the one with most memory."""
    rows, inside, counted = [], 0, 0
    for of_model in _models(groups):
        low, high = (next(runs for runs in of_model if runs[0].of.schedule == name) for name in (LOW, HIGH))
        for runs in of_model:
            shares = [
                (held(r) - held(a)) / (held(b) - held(a)) for r, a, b in zip(runs, low, high, strict=True)
            ]
            between = "–"
            if runs not in (low, high):
                least, most = share_interval(*(peak_gb(of[0]) for of in (runs, low, high)), ROUNDING_GB)
                between = f"{least:.2f} to {most:.2f}"
                inside += sum(least <= share <= most for share in shares)
                counted += len(shares)
            counts, parts = (
                _each(f"{held(run):.1f}" for run in runs),
                _each(f"{share:.2f}" for share in shares),
            )
            rows.append([*_names(runs), f"{peak_gb(runs[0]):g}", counts, between, parts])
    header = ["model", "schedule", "M", "measured GB", "held", "share, measured", "share, held"]
    kept = [run.shown.pipe.kept for group in groups for run in group]
    text = f"""\
What lists alone say about memory. *Held*: the most layers of micro-batches whose activations a rank holds,
counted in our lists for the profiled times; of a layer's activations a part of {min(kept):.2f} to
{max(kept):.2f} waits for W, by the authors' count of bytes. Parameters and the bytes of a layer cancel in
the *share*: where a schedule stands between `{LOW}` (0) and `{HIGH}` (1) of its model and batch. The
measured one is an interval, since peaks were published without decimals. Nothing is fitted; left out are
buffers and which rank has the embedding or the head. Inside the interval: {inside} of {counted}.

{table(header, rows)}"""
    return Section("Zero Bubble's runs: memory by lists alone", text)


def held(run: Profiled) -> float:
    """The most layers of micro-batches whose activations a rank holds."""
    layers, kept = run.of.layers, run.shown.pipe.kept
    return max(most_activations(actions, layers, kept) for actions in run.shown.lists)


def peak_gb(run: Profiled) -> float:
    """The published peak."""
    assert run.of.run.memory_gib is not None
    return run.of.run.memory_gib


def share_interval(value: float, low: float, high: float, rounding: float) -> tuple[float, float]:
    """The least and the largest (value − low) / (high − low) of numbers that were rounded by up to so much."""
    values, lows, highs = ((number - rounding, number + rounding) for number in (value, low, high))
    shares = [(v - a) / (b - a) for v in values for a in lows for b in highs]
    return min(shares), max(shares)


def by_schedule(runs: Sequence[Profiled]) -> list[list[Profiled]]:
    """Runs of one model and schedule, small batches first; schedules with little memory first."""

    def key(run: Profiled) -> tuple[int, float, str]:
        return setting_key(run.of)[0], peak_gb(run), run.of.schedule

    ordered = sorted(runs, key=lambda run: (*key(run), run.micro_batches))
    return [list(of_one) for _, of_one in groupby(ordered, key=key)]


def _models(groups: Sequence[Sequence[Profiled]]) -> list[list[list[Profiled]]]:
    """The runs of every model by schedule."""
    runs = by_schedule([run for group in groups for run in group])
    return [list(of_model) for _, of_model in groupby(runs, key=lambda of_one: setting_key(of_one[0].of)[0])]


def _names(runs: Sequence[Profiled]) -> list[object]:
    return [runs[0].of.run.given.model, runs[0].of.schedule, _each(run.micro_batches for run in runs)]


def _each(cells: Iterable[object]) -> str:
    """Figures of several batches in one cell, or one where all are equal."""
    words = list(map(str, cells))
    return words[0] if len(set(words)) == 1 else " / ".join(words)
