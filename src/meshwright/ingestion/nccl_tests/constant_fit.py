"""Fit the cost model's collective constants to measurements of the user's cluster.

The formula is the one that predicts (``cost/operators/kernel_and_collective_times.py``), with its exponents fixed:
inside a fast domain t = α + β·(n − 1) + V/B·((V + V0)/V)^q for two curves (all-reduce; all-gather, which
reduce-scatter and all-to-all share), β from groups of several sizes; across domains the slower of that and of the
network cards at η of their rate, with a latency and, except for all-to-all, a saturation of their own; messages have a
latency and a share of the link or of the card. Sizes in and out of place both count.

η is identified only if the cards are the bottleneck. Two well-connected nodes run at the pace of the links inside,
which only bounds η from below: the bound is used if it is above the present value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.cluster.cluster import Cluster
from meshwright.cost.constants import CURVES
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.errors import InputError, Problem
from meshwright.ingestion.nccl_tests.fitted_values import WORDS, CollectiveFit, FittedCollectives, fitted
from meshwright.ingestion.nccl_tests.least_squares import Floats, Solution, Unknown, solve
from meshwright.ingestion.nccl_tests.predicted_times import (
    CURVE_OF,
    MESSAGE,
    PROCESS_LATENCY,
    MeasurementColumns,
    changed,
    current_forms,
    form_seconds,
    measurement_columns,
)
from meshwright.ingestion.nccl_tests.table import Measurement

INSIDE, ACROSS = "inside a fast domain", "across fast domains"
FEWEST_SIZES = 4
BINDS = 1 / 0.85
"""Time relative to the links inside above which the cards are the bottleneck."""
UNBOUND, SATURATED = 1e9, 1e-6
LATENCIES, EFFICIENCIES, SMALLEST_SATURATION = (1e-8, 1.0), (0.01, 2.0), 1e4
"""Bounds of fitted values: seconds, fractions, bytes."""
AT_BOUND = 1e-3
GATHERS = ("all-gather", "reduce-scatter")


def fit_collectives(records: Sequence[Measurement], cluster: Cluster) -> FittedCollectives:
    """Fit the constants that the measurements identify. Raises InputError if they identify none."""
    if len(cluster.pools) != 1:
        rule = "collectives are fitted for one pool of equal nodes"
        raise InputError(Problem("cluster", len(cluster.pools), rule, "a cluster of that pool alone"))
    known = [r for r in records if not r.wrong and r.collective in (*CURVE_OF, MESSAGE) and r.ranks > 1]
    remarks = []
    if len(known) < len(records):
        remarks.append(
            f"{len(records) - len(known)} measurements are left out: wrong, of one rank, or not in the form"
        )
    chip, devices = cluster.pool.device.id.partition("-")[0], sorted({r.device for r in known if r.device})
    if devices and not any(chip in device.lower() for device in devices):
        remarks.append(f"measured on {', '.join(devices)}, and the cluster has {cluster.pool.device.id}")
    sample = measurement_columns(known, cluster.pool)
    fits = _Fitting(current_forms(cluster), remarks).run(sample)
    if not fits:
        rule = "; ".join(remarks) or "none can be fitted"
        raise InputError(Problem("measurements", len(known), rule, "a sweep over sizes"))
    return FittedCollectives(cluster=cluster.name, fits=fits, remarks=tuple(remarks))


@dataclass(frozen=True, slots=True)
class _Cards:
    """The network cards' limit: does it ``bind``, their rate as ``reached``, and the rate that equals the links'."""

    bind: bool
    reached: float
    as_links: float


class _Fitting:
    """Formulas improved fit by fit, where later fits build on earlier ones."""

    def __init__(self, forms: HardwareTimes, remarks: list[str]) -> None:
        self.forms, self.remarks = forms, remarks
        self.fits: list[CollectiveFit] = []

    def run(self, sample: MeasurementColumns) -> tuple[CollectiveFit, ...]:
        """Run all fits."""
        messages = sample.kind == MESSAGE
        self.messages(INSIDE, sample.take(messages & ~sample.crosses))
        self.messages(ACROSS, sample.take(messages & sample.crosses))
        self.inside(sample.take(~messages & ~sample.crosses))
        self.across(sample.take(~messages & sample.crosses))
        return tuple(self.fits)

    def inside(self, sample: MeasurementColumns) -> None:
        """Fit the two curves of a fast domain, the one with less latency first: its latency is what processes add."""
        gathers, exchanges = np.isin(sample.kind, GATHERS), sample.kind == "all-to-all"
        parts = {
            "all_reduce": sample.take(sample.kind == "all-reduce"),
            "all_gather": sample.take(gathers if gathers.any() else exchanges),
        }
        of_curve = {name: part for name, part in parts.items() if len(part)}
        for name in sorted(of_curve, key=lambda name: float(of_curve[name].seconds.min())):
            self.curve(name, of_curve[name])
        if gathers.any() and exchanges.any():
            part = sample.take(exchanges)
            ratio = float(np.median(part.seconds / form_seconds(self.forms, part)))
            rule = "what the curve of all-gather says; the form has no curve of its own for it"
            self.remarks.append(f"all-to-all {INSIDE} takes {ratio:.2f} times {rule}")

    def curve(self, name: str, sample: MeasurementColumns) -> None:
        """Fit a curve's latencies, plateau and saturation.

        With a process per device, the first latency is the processes'.
        """
        curve, link = getattr(self.forms.kernels, name), self.forms.kernels.measured_scaleup_bytes_per_s
        is_known = any(value.name == PROCESS_LATENCY for fit in self.fits for value in fit.values)
        of_processes = sample.alone.all() and not is_known
        latency = PROCESS_LATENCY if of_processes else f"{name}.latency_s"
        present = self.forms.constants[latency] if of_processes else curve.latency_s
        volume = sample.size * (2 if name == "all_reduce" else 1) * (sample.ranks - 1) / sample.ranks
        fastest = float((volume / sample.seconds).max()) / link
        shortest = float(sample.seconds.min()) / 2
        plateau = curve.bandwidth_bytes_per_s / link
        unknowns = {
            latency: Unknown(present, shortest, *LATENCIES),
            f"{name}.efficiency": Unknown(plateau, fastest, fastest / 2, fastest * 4),
            f"{name}.saturation_bytes": _saturation(curve.saturation_bytes, volume),
        }
        if len(np.unique(sample.ranks)) > 1:
            per_rank = Unknown(curve.latency_per_rank_s, shortest, *LATENCIES)
            unknowns[f"{name}.latency_per_rank_s"] = per_rank
        self.fit(INSIDE, sample, unknowns)

    def across(self, sample: MeasurementColumns) -> None:
        """Fit latency, saturation and, if the cards are the bottleneck, their efficiency."""
        if not len(sample) or self.forms.nic_bytes_per_s <= 0:
            return
        present = self.forms.constants
        volume = sample.size * np.where(sample.kind == "all-reduce", 2, 1)
        unknowns = {
            "nic_latency_s": Unknown(present["nic_latency_s"], float(sample.seconds.min()) / 2, *LATENCIES),
            "nic_saturation_bytes": _saturation(present["nic_saturation_bytes"], volume),
        }
        if sample.alone.any() and self.latency_left(sample) < 0:
            low = LATENCIES[0]
            unknowns["nic_latency_s"] = Unknown(present["nic_latency_s"], low, *LATENCIES)
            unknowns[PROCESS_LATENCY] = Unknown(
                present[PROCESS_LATENCY], float(sample.seconds.min()) / 2, *LATENCIES
            )
        cards = self.cards(sample.largest)
        if cards.bind:
            most = max(min(cards.as_links, 1.0), cards.reached)
            unknowns["nic_efficiency"] = Unknown(
                present["nic_efficiency"], cards.reached, EFFICIENCIES[0], most
            )
        else:
            self.keep_cards(cards.reached)
        self.fit(ACROSS, sample, unknowns)

    def latency_left(self, sample: MeasurementColumns) -> float:
        """Return the seconds of the fastest measurement that are left for the latency of leaving the domain."""
        fastest = sample.take(sample.seconds == sample.seconds.min())
        no_latency = {"nic_latency_s": LATENCIES[0], "nic_saturation_bytes": SATURATED}
        return float((fastest.seconds - form_seconds(changed(self.forms, no_latency), fastest)).max())

    def keep_cards(self, reached: float) -> None:
        """Raise the cards' efficiency to the fraction that they have reached without being the bottleneck."""
        present = self.forms.constants["nic_efficiency"]
        rule = f"the links inside set the pace: the cards reach at least {reached:.2f} of their rate"
        self.remarks.append(
            f"nic_efficiency is not identified: {rule}, and are taken at {max(reached, present):.2f}"
        )
        self.forms = changed(self.forms, {"nic_efficiency": max(reached, present)})
        if reached > present:
            value = fitted(f"{ACROSS}: at least", "nic_efficiency", reached, present)
            self.fits.append(CollectiveFit(where=ACROSS, values=(value,)))

    def cards(self, largest: MeasurementColumns) -> "_Cards":
        """Return what large collectives show about the cards."""
        plain = changed(self.forms, {"nic_saturation_bytes": SATURATED})
        links = form_seconds(changed(plain, {"nic_efficiency": UNBOUND}), largest)
        without_links = {"nic_efficiency": 1.0, **{f"{name}.efficiency": UNBOUND for name in CURVES}}
        ideal = form_seconds(changed(plain, without_links), largest)
        slowest = int((largest.seconds / links).argmax())
        return _Cards(
            bool(largest.seconds[slowest] >= BINDS * links[slowest]),
            float((ideal / largest.seconds).max()),
            float(ideal[slowest] / links[slowest]),
        )

    def messages(self, where: str, sample: MeasurementColumns) -> None:
        """Fit latency and rate of messages between two ranks."""
        if not len(sample):
            return
        name = "p2p_nic_efficiency" if where == ACROSS else "p2p_scaleup_efficiency"
        rate = self.forms.nic_bytes_per_s if where == ACROSS else self.forms.scaleup_bytes_per_s
        if rate <= 0:
            return
        constants = self.forms.constants
        reached = float((sample.size / sample.seconds).max()) / rate
        unknowns = {
            "p2p_latency_s": Unknown(constants["p2p_latency_s"], float(sample.seconds.min()), *LATENCIES),
            name: Unknown(constants[name], reached, *EFFICIENCIES),
        }
        self.fit(where, sample, unknowns)

    def fit(self, where: str, sample: MeasurementColumns, unknowns: Mapping[str, Unknown]) -> None:
        """Solve for unknowns, keep the identified ones, and remark on the others."""
        kinds = tuple(np.unique(sample.kind).tolist())
        label = f"{', '.join(kinds)} {where}"
        sizes = len(np.unique(sample.size))
        if sizes < FEWEST_SIZES:
            self.remarks.append(
                f"{label}: {sizes} sizes are too few to fit, at least {FEWEST_SIZES} are needed"
            )
        else:
            solution = solve(unknowns, lambda v: form_seconds(changed(self.forms, v), sample), sample.seconds)
            self.forms = changed(self.forms, solution.values)
            self.remarks += _open_questions(label, unknowns, solution)
            values = (
                fitted(
                    label,
                    name,
                    solution.values[name],
                    unknown.present,
                    at_bound=_at_bound(name, unknown, solution.values[name]),
                )
                for name, unknown in unknowns.items()
                if name in solution.identified
            )
            fit = CollectiveFit(
                where=where,
                collectives=kinds,
                measurements=len(sample),
                error_mean=float(np.abs(solution.errors).mean()),
                error_max=float(np.abs(solution.errors).max()),
                values=tuple(values),
            )
            self.fits.append(fit)


def _open_questions(label: str, unknowns: Mapping[str, Unknown], solution: Solution) -> list[str]:
    """Return remarks on constants that are not identified, or end at a bound."""
    found = []
    for name, unknown in unknowns.items():
        value = solution.values[name]
        if name not in solution.identified:
            found.append(f"{label}: the {WORDS[name][0]} is not identified by these sizes and stays as it is")
        elif _at_bound(name, unknown, value):
            rule = "the form fits no better, so do not trust it by itself"
            found.append(f"{label}: the {WORDS[name][0]} ends at a bound of its range, {value:.3g}: {rule}")
    return found


def _at_bound(name: str, unknown: Unknown, value: float) -> bool:
    """Return whether a value ended at a bound of its range; the least saturation is none at all, and no doubt."""
    if name.endswith("saturation_bytes") and value < unknown.high * (1 - AT_BOUND):
        return False
    return not unknown.low * (1 + AT_BOUND) < value < unknown.high * (1 - AT_BOUND)


def _saturation(present: float, volume: Floats) -> Unknown:
    """Return an unknown saturation that may lie a little above the measured sizes."""
    low, high = SMALLEST_SATURATION, float(volume.max()) * 10
    return Unknown(present, min(max(present, low), high), low, max(high, 10 * low))
