"""Judge a predictor's choice among the measured layouts of one workload, by throughput per device.

A layout group is all runs with equal source, model, device, engine, formats, lengths and load that have a predicted
and a measured throughput, and at least two layouts (devices, workers and their degrees); runs of one layout are
averaged. The layout with the largest predicted throughput is chosen. The regret of a choice is the measured time of a
token over the least of the group, minus 1. Two simple rules are judged alike: the largest tp (of the workers that
decode), and the fewest devices, then the least tp. Equal layouts by a rule: the fewest devices, then the least
degrees, then the first of the table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.validation import error_metrics
from meshwright.validation.serving.serving_row import ServingInputs, ServingRow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_LAYOUTS = 2
WITHIN = 0.05


@dataclass(frozen=True, slots=True)
class LayoutGroup:
    """The layouts of one workload, in the order of the table, with mean throughputs per device.

    ``runs`` are the runs' throughputs, measured and predicted, of all layouts.
    """

    source: str
    layouts: tuple[ServingInputs, ...]
    measured: Floats
    predicted: Floats


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """Figures of one group: regrets as fractions, pairs that differ by more than 5 %."""

    regret: float
    largest_tp_regret: float
    smallest_regret: float
    right: int
    counted: int


def layout_groups(rows: Sequence[ServingRow], predicted: Floats) -> list[LayoutGroup]:
    """Return the layout groups. ``predicted``: output tokens per second of a device by row, NaN without one."""
    found: dict[Any, dict[Any, list[int]]] = {}
    for number, row in enumerate(rows):
        if row.measured.output_tokens_per_s_per_device is not None and np.isfinite(predicted[number]):
            group = found.setdefault((row.source, row.inputs.layout_free), {})
            group.setdefault(row.inputs, []).append(number)
    return [
        _group(source, layouts, rows, predicted)
        for (source, _), layouts in found.items()
        if len(layouts) >= MIN_LAYOUTS
    ]


def _group(
    source: str, layouts: dict[ServingInputs, list[int]], rows: Sequence[ServingRow], predicted: Floats
) -> LayoutGroup:
    measured = [
        np.mean([rows[number].measured.output_tokens_per_s_per_device for number in numbers])
        for numbers in layouts.values()
    ]
    means = [predicted[numbers].mean() for numbers in layouts.values()]
    return LayoutGroup(source, tuple(layouts), np.array(measured), np.array(means))


def judge(group: LayoutGroup) -> LayoutChoice:
    """Return the regrets of the choice and of both rules, and the pairs in the right order."""
    token_s = 1 / group.measured
    right, counted = error_metrics.ordered_pairs(group.measured, group.predicted)

    def regret(order: Iterable[float]) -> float:
        ranked = sorted(
            zip(order, group.layouts, token_s, strict=True), key=lambda one: (one[0], _size(one[1]))
        )
        return error_metrics.regret(np.array([time for _, _, time in ranked]))

    return LayoutChoice(
        regret=regret(-group.predicted),
        largest_tp_regret=regret(-layout.tp for layout in group.layouts),
        smallest_regret=regret(layout.devices for layout in group.layouts),
        right=right,
        counted=counted,
    )


def _size(layout: ServingInputs) -> tuple[int, ...]:
    degrees = layout.workers[-1].layout
    return layout.devices, layout.tp, degrees.pp, degrees.attention_dp, degrees.ep


def layout_figures(choices: Sequence[LayoutChoice]) -> dict[str, Any]:
    """Return the figures of some groups in the public form; fractions, None without groups or pairs."""
    counted = sum(choice.counted for choice in choices)
    regrets = np.array([choice.regret for choice in choices])
    return {
        "groups": len(choices),
        "top1": _mean(regrets == 0),
        "within_5_percent": _mean(regrets <= WITHIN),
        "regret_mean": _mean(regrets),
        "pairs_right": sum(choice.right for choice in choices) / counted if counted else None,
        "largest_tp_regret_mean": _mean([choice.largest_tp_regret for choice in choices]),
        "smallest_regret_mean": _mean([choice.smallest_regret for choice in choices]),
    }


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None
