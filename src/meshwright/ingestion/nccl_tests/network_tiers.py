"""Fit the oversubscription of a cluster's tiers to collectives inside one group of a tier and over several groups.

The formulas with constants fitted inside the groups predict the collective over several groups; what it loses with
more nodes anyway is in them. A collective inside a group is told apart by its error: o is that with which

    t(o; several groups) / t(several groups)  =  t(one group) / t(one group)        (predicted over measured)

at large messages of the same collective, in least squares over all collectives. A tier is told by collectives that
span its groups and those of all smaller tiers, and none of larger ones. A ring crosses the border of a group with few
cards, so that only all-to-all shows a small o. Where no time depends on o, it is only bounded from above: the bound is
used if it is below the present value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.cluster import Cluster, Tier
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.ingestion.nccl_tests.constant_fit import FEWEST_SIZES, fit_collectives
from meshwright.ingestion.nccl_tests.fitted_values import FittedCollectives
from meshwright.ingestion.nccl_tests.least_squares import Floats, Unknown, solve
from meshwright.ingestion.nccl_tests.predicted_times import (
    CURVE_OF,
    MeasurementColumns,
    changed,
    current_forms,
    form_seconds,
    measurement_columns,
    spans,
)
from meshwright.ingestion.nccl_tests.table import Measurement
from meshwright.measurement.results import LEAST_SLOWDOWN

NAME = "oversubscription"
MOST = 1e6
LARGE = 1 / 8
"""Messages of at least this fraction of the largest one are large."""
LISTED = 8


@dataclass(frozen=True, slots=True)
class FittedNetwork:
    """Fitted constants of collectives, and the tiers with the oversubscription that was measured."""

    collectives: FittedCollectives
    tiers: tuple[Tier, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Large messages of the same collectives inside one group of a tier and over several, by row of the sample."""

    inside: NDArray[np.int64]
    several: NDArray[np.int64]


def fit_network(tests: Mapping[str, Sequence[Measurement]], cluster: Cluster) -> FittedNetwork:
    """Fit constants and tiers to the measurements of files. Raises InputError if they identify no constant.

    Where a tier is told, constants are fitted to what lies inside its groups.
    """
    every = [record for records in tests.values() for record in records]
    if not cluster.tiers or len(cluster.pools) != 1:
        return FittedNetwork(fit_collectives(every, cluster), cluster.tiers)
    known = [(path, r) for path, records in tests.items() for r in records if _is_comparable(r)]
    files = np.array([path for path, _ in known], np.str_)
    sample = measurement_columns([record for _, record in known], cluster.pool)
    ordered = sorted(cluster.tiers, key=lambda tier: tier.devices)
    spanned = sum((spans(tier, sample).astype(np.int64) for tier in ordered), np.zeros(len(sample), np.int64))
    told = {tier: found for at, tier in enumerate(ordered) if (found := _comparison(sample, spanned, at))}
    if told:
        smallest = next(iter(told))
        in_groups = measurement_columns(every, cluster.pool)
        every = [r for r, out in zip(every, spans(smallest, in_groups), strict=True) if not out]
    fitted = fit_collectives(every, cluster)
    forms, remarks = changed(current_forms(cluster), fitted.calibration), []
    for tier in ordered:
        if tier not in told:
            rule = f"it takes a collective over nodes inside one {tier.name}, and the same over several"
            remarks.append(f"{NAME} of {tier.name} stays {tier.oversubscription:.4g}: {rule}")
            continue
        new, remark = _measured(tier, forms, sample, told[tier], files)
        forms = _with_tier(forms, tier, new)
        remarks.append(remark)
    return FittedNetwork(fitted, forms.tiers, tuple(remarks))


def _is_comparable(record: Measurement) -> bool:
    return not record.wrong and record.collective in CURVE_OF and record.ranks > 1


def _comparison(sample: MeasurementColumns, spanned: NDArray[np.int64], at: int) -> _Comparison | None:
    """Return the large messages that tell the tier of an index, smallest tier first; None if there are none."""
    inside: list[int] = []
    several: list[int] = []
    for kind in np.unique(sample.kind):
        one = np.flatnonzero((sample.kind == kind) & sample.crosses & (spanned == at))
        more = np.flatnonzero((sample.kind == kind) & (spanned == at + 1))
        if len(np.unique(sample.size[one])) >= FEWEST_SIZES and len(more):
            inside += _large(sample, one)
            several += _large(sample, more)
    return _Comparison(np.array(inside, np.int64), np.array(several, np.int64)) if inside else None


def _large(sample: MeasurementColumns, rows: NDArray[np.int64]) -> list[int]:
    size = sample.size[rows]
    return [int(row) for row in rows[size >= LARGE * size.max()]]


def _measured(
    tier: Tier,
    forms: HardwareTimes,
    sample: MeasurementColumns,
    compared: _Comparison,
    files: NDArray[np.str_],
) -> tuple[Tier, str]:
    """Return the tier with its measured oversubscription, and a remark; ``files`` of each row."""
    present = tier.oversubscription
    several, error = sample.take(compared.several), _errors_inside(forms, sample, compared)

    def seconds(values: Mapping[str, float]) -> Floats:
        changed_tier = replace(tier, oversubscription=values[NAME])
        return np.multiply(error, form_seconds(_with_tier(forms, tier, changed_tier), several))

    def solved(measured: Floats) -> float:
        unknown = Unknown(present, present, 1.0, max(MOST, present))
        return float(f"{solve({NAME: unknown}, seconds, measured).values[NAME]:.3g}")

    plain, value = seconds({NAME: 1.0}), solved(several.seconds)
    slower = float((seconds({NAME: value}) / plain).max())
    is_seen = slower >= 1 + LEAST_SLOWDOWN
    if not is_seen:
        value = solved(plain * (1 + LEAST_SLOWDOWN))
    kinds = np.unique(several.kind[seconds({NAME: value}) > plain])
    rows = np.concatenate([compared.inside, compared.several])
    told = files[rows[np.isin(sample.kind[rows], kinds)]].tolist()
    listed = _listed(sorted({Path(name).name for name in told}))
    over = f"{', '.join(kinds.tolist())} over several groups"
    if is_seen:
        text, rule = f"{value:.4g}", f"{over} take up to {slower:.2f} times as long as without it"
    elif value < present:
        text, rule = f"at most {value:.4g}", f"{over} take no longer than without it"
    else:
        rule = f"{over} take no longer than with 1, and show none below {value:.3g}"
        return tier, f"{NAME} of {tier.name} stays {present:.4g}: {rule} ({listed})"
    remark = f"{NAME} of {tier.name} {text} in place of {present:.4g}: {rule} ({listed})"
    return replace(tier, oversubscription=value, source=f"measured: {listed}"), remark


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _errors_inside(forms: HardwareTimes, sample: MeasurementColumns, compared: _Comparison) -> Floats:
    """Return measured over predicted time inside a group, of the collective of each row over several."""
    inside = sample.take(compared.inside)
    ratio, kinds = inside.seconds / form_seconds(forms, inside), sample.kind[compared.several]
    return np.array([np.median(ratio[inside.kind == kind]) for kind in kinds], np.float64)


def _with_tier(forms: HardwareTimes, tier: Tier, new: Tier) -> HardwareTimes:
    return replace(forms, tiers=tuple(new if one == tier else one for one in forms.tiers))
