"""Calibrate a cluster on a few of the user's runs: compute, network and host time, nothing else.

Three constants are fitted with priors around the present ones, so that three runs cannot move them far; a cluster file
with a tier whose groups the runs span adds that tier's oversubscription. The gain
is estimated by leaving each run out in turn: fit on the others, predict it. If that error is not smaller than
the present one the calibration is refused. The rule was chosen over stricter and looser ones by its effect on draws
from published runs (``benchmarks/calibration-draws.md``): a looser rule lets runs of one model spoil good predictions
of others, a stricter one refuses helpful fits.

The errors of the runs that were left out also tell how far predictions are off from now on. Three of them alone tell
little: they are taken together with the error of an unseen stack but for the stack's part, as ``PRIOR_RUNS`` more runs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.calibration.fit import fit
from meshwright.calibration.fitted_parameters import Parameter, Prior
from meshwright.calibration.observations import Floats, Observation
from meshwright.cluster.cluster import CalibrationRuns, Cluster
from meshwright.cost.constant_values import TIER, matters, value_in, with_values
from meshwright.cost.constants import constants, kernels
from meshwright.cost.uncertainty.error_parts import error_parts
from meshwright.cost.uncertainty.seen_runs import models
from meshwright.errors import InputError, Problem
from meshwright.validation.read_run_table import Skipped

PRIOR_RUNS = 2
"""So many runs the error that published runs lead to expect counts for, beside the user's own."""
WIDTHS = {"gemm_efficiency": 0.08, "nic_efficiency": 0.4, "host_s_per_layer": 0.7}
TIER_WIDTH = 0.4
FEWEST_RUNS = 3
LISTED = 5


@dataclass(frozen=True)
class ClusterCalibration:
    """Constants fitted to the user's runs; mean absolute errors of left-out runs, before and after.

    ``uncertainty`` is the standard error of the difference of the two; ``sigma`` the standard deviation of
    log(measured/predicted) that is expected from now on; ``skipped`` are runs that were not used.
    """

    cluster: Cluster
    values: Mapping[str, float]
    present: Mapping[str, float]
    runs: int
    error_before: float
    error_after: float
    uncertainty: float
    sigma: float
    skipped: tuple[Skipped, ...] = ()

    @property
    def helps(self) -> bool:
        """True if left-out runs are predicted better."""
        return self.error_after < self.error_before

    def to_json(self) -> dict[str, object]:
        """Return JSON-ready data; errors are fractions."""
        return {
            "cluster": self.cluster.name,
            "runs": self.runs,
            "constants": [
                {"name": name, "before": self.present[name], "after": value}
                for name, value in self.values.items()
            ],
            "expected_error_before": self.error_before,
            "expected_error_after": self.error_after,
            "uncertainty": self.uncertainty,
            "sigma": self.sigma,
            "helps": self.helps,
            "skipped": [{"run_id": run.run_id, "reason": run.reason} for run in self.skipped],
        }


def fit_cluster_constants(
    observations: Sequence[Observation], skipped: Sequence[Skipped] = ()
) -> ClusterCalibration:
    """Fit a cluster's constants to runs on it. Raises InputError if they are too few or of several clusters.

    ``skipped`` are unusable runs of the same table; the answer, or the error, lists them.
    """
    runs = _single_runs(observations)
    _check(runs, skipped)
    parameters = cluster_parameters(max(runs, key=lambda run: run.setting.cluster.devices))
    values = fit(runs, parameters, runs_of_a_source=None).values
    present = {p.name: p.value for p in parameters}
    before = np.array([abs(np.expm1(run.log_errors({})[0])) for run in runs])
    left_out = np.array([run.log_errors(_without(run, runs, parameters))[0] for run in runs])
    after = np.abs(np.expm1(left_out))
    uncertainty = np.std(after - before, ddof=1) / np.sqrt(len(runs))
    sigma = expected_sigma(left_out, runs[0])
    ((stack, _),) = Counter(run.setting.stack.name for run in runs).most_common(1)
    calibrated = CalibrationRuns(stack=stack, runs=len(runs), sigma=sigma)
    changed = with_values(runs[0].setting, values)
    cluster = replace(changed.cluster, calibrated=calibrated)
    values = {name: value_in(changed, name) for name in values}
    errors = float(before.mean()), float(after.mean()), float(uncertainty), sigma
    return ClusterCalibration(cluster, values, present, len(runs), *errors, tuple(skipped))


def expected_sigma(left_out: Floats, run: Observation) -> float:
    """Return the standard deviation of the error after a calibration, from errors of left-out runs."""
    parts = error_parts()[f"{models(run.setting)} unseen"]
    squares = PRIOR_RUNS * (parts.group**2 + parts.run**2) + float((left_out**2).sum())
    return float(np.sqrt(squares / (PRIOR_RUNS + len(left_out))))


def _without(
    run: Observation, runs: Sequence[Observation], parameters: Sequence[Parameter]
) -> Mapping[str, float]:
    """Return the constants fitted without one run."""
    return fit([o for o in runs if o is not run], parameters, runs_of_a_source=None).values


def cluster_parameters(run: Observation) -> list[Parameter]:
    """Return the fitted parameters, from the present values of a run's device, stack and cluster.

    The tiers are those whose groups the run spans.
    """
    present = {
        "gemm_efficiency": kernels(run.setting.cluster.pool.device.id).gemm_efficiency,
        "nic_efficiency": constants()["nic_efficiency"],
        "host_s_per_layer": run.setting.stack.host_s_per_layer,
    }
    calibrated = dict(run.setting.cluster.calibration)
    present |= {name: calibrated[name] for name in present if name in calibrated}
    tiers = [TIER + tier.name for tier in run.setting.cluster.tiers]
    spanned = [name for name in tiers if matters(name, run.setting, run.plans)]
    present |= {name: value_in(run.setting, name) for name in spanned}
    widths = WIDTHS | dict.fromkeys(spanned, TIER_WIDTH)
    return [Parameter(name, present[name], Prior(present[name], width)) for name, width in widths.items()]


def _single_runs(observations: Sequence[Observation]) -> list[Observation]:
    """Return one observation per run, all of one source, so that each counts the same."""
    return [
        Observation(o.setting, o.plans.take(np.array([i])), o.measured_s[i : i + 1], ("own",))
        for o in observations
        for i in range(len(o.plans))
    ]


def _check(runs: Sequence[Observation], skipped: Sequence[Skipped]) -> None:
    if len(runs) < FEWEST_RUNS:
        rule = f"{len(runs)} runs can be used, at least {FEWEST_RUNS} are needed"
        few = Problem("runs", len(runs), rule, "short runs that differ in tp, pp or micro-batch")
        raise InputError([few, *_why_skipped(skipped)])
    devices = sorted({run.setting.cluster.pool.device.id for run in runs})
    if len(devices) > 1:
        rule = "the runs are of several devices: " + ", ".join(devices)
        raise InputError(Problem("runs", len(devices), rule, "one file per cluster"))


def _why_skipped(skipped: Sequence[Skipped]) -> Iterator[Problem]:
    """Yield one warning for every reason, with the first runs that it applies to."""
    names: dict[str, list[str]] = {}
    for run in skipped:
        names.setdefault(run.reason, []).append(run.run_id)
    for reason, runs in names.items():
        more = f" and {len(runs) - LISTED} more" if len(runs) > LISTED else ""
        first = ", ".join(runs[:LISTED]) + more
        yield Problem("runs", first, f"can not be used: {reason}", "mend the row, or leave it out", "warning")
