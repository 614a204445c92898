"""A training run as a Report: its measurements and the prediction for the same plan and devices."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from meshwright.cluster.catalog import device_ids
from meshwright.cluster.cluster import Cluster
from meshwright.cost.flops_per_token import model_flops_per_token
from meshwright.errors import InputError
from meshwright.ingestion.device_names import device_of
from meshwright.ingestion.logs.iteration_series import IterationSeries, Timing
from meshwright.result import Report
from meshwright.runtime.progress.model_flops_utilisation import Utilisation, utilisation
from meshwright.units import GIB
from meshwright.verbs.predict.predict_plan import predicted
from meshwright.verbs.run.run_request import CheckedRun

if TYPE_CHECKING:
    from meshwright.runtime.training.job_and_outcome import Outcome

CPU = "cpu"


def planned_devices(cluster: Cluster, name: str, memory_bytes: int) -> bool:
    """Return true if a device of this name is the one that the cluster is made of.

    A device of one's own, which no catalogue knows, is taken to be the one that was measured for it.
    """
    device = cluster.pool.device.id
    if device not in device_ids():
        return True
    return name != CPU and device_of(name, memory_bytes / GIB) == device


def utilisation_on(grant: CheckedRun, name: str, memory_bytes: int, *, causal: bool = False) -> Utilisation:
    """Return how a plan uses a device of this name and memory."""
    setting = grant.resolved.setting
    workload = setting.workload
    flops = model_flops_per_token(
        setting.model,
        workload.seq_len,
        causal=causal,
        documents=workload.documents,
        encoder=workload.encoder_lengths,
    )
    cluster = setting.cluster if planned_devices(setting.cluster, name, memory_bytes) else None
    return utilisation(flops, cluster, grant.peak_precision)


@dataclass(frozen=True)
class CompletedRun:
    """A run that has ended well, by itself or by a signal. ``load_average`` is the host's before it began."""

    grant: CheckedRun
    data: Mapping[str, object]
    outcome: "Outcome"
    remarks: tuple[str, ...]
    load_average: float

    @cached_property
    def timing(self) -> Timing | None:
        """Seconds of a step without warm-up, as ``ingest`` reads them from the metrics; None without a step.

        Steps of former plans do not count.
        """
        changes, series = self.outcome.members, IterationSeries()
        first = changes[-1].step - self.outcome.first_step if changes else 0
        own = self.outcome.step_times_s[max(0, first) :]
        for step, seconds in enumerate(own):
            series.add(step, seconds, None)
        found, times = series.timing(), sorted(own)
        if found is None and times:
            return Timing(times[len(times) // 2], times[0], times[-1], len(times), 0)
        return found

    @cached_property
    def prediction(self) -> Report | str:
        """Return the prediction for this plan, or why it does not apply to this run."""
        setting, outcome = self.grant.resolved.setting, self.outcome
        if not planned_devices(setting.cluster, outcome.device, outcome.device_bytes):
            return f"null: the plan is for {setting.cluster.pool.device.id}, this ran on {outcome.device}"
        if self.grant.precision != setting.workload.precision:
            return (
                f"null: the plan computes in {setting.workload.precision}, this ran in {self.grant.precision}"
            )
        try:
            return predicted(self.grant.resolved)
        except InputError as error:
            return "null: " + "; ".join(problem.rule for problem in error.problems)

    def to_json(self) -> dict[str, Any]:
        """Return the public form: a Report's keys, the measurements, and the prediction under ``predicted``."""
        outcome, prediction = self.outcome, self.prediction
        known = isinstance(prediction, Report)
        measured = self._report()
        step_s = measured["step_time_s"]
        return measured | {
            "ranks": self.grant.resolved.setting.cluster.devices,
            "device": outcome.device,
            "precision": self.grant.precision,
            "first_step": outcome.first_step,
            "steps": len(outcome.losses),
            "losses": list(outcome.losses),
            "gradient_norms": list(outcome.norms),
            "load_average": self.load_average,
            "held_out": [{"step": h.step, "loss": h.loss, "tokens": h.tokens} for h in outcome.held_out],
            "dropped_choices": outcome.dropped,
            "sequences_not_seen": outcome.sequences_not_seen,
            "data": dict(self.data),
            "output": str(self.grant.options.output),
            "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
            "checkpoint_blocked_s": outcome.checkpoint_blocked_s,
            "checkpoint_lasted_s": outcome.checkpoint_lasted_s,
            "export": None if outcome.export is None else str(outcome.export),
            "stopped_by_signal": outcome.stopped,
            "faults": [fault.to_json() for fault in outcome.faults],
            "members": [change.to_json() for change in outcome.members],
            "predicted": prediction.to_json() if isinstance(prediction, Report) else None,
            "predicted_over_measured": prediction.step_time_s / step_s
            if isinstance(prediction, Report) and step_s
            else None,
            "remarks": list(self.remarks),
            "origin": self._origin(None if known else str(prediction)),
        }

    def _report(self) -> dict[str, Any]:
        """Return a Report's keys; a figure that was not measured is null."""
        setting, timing = self.grant.resolved.setting, self.timing
        tokens = setting.workload.seq_len * setting.workload.global_batch
        rate = tokens / timing.median_s if timing else None
        return {
            "kind": "measured",
            "unit": "step",
            "step_time_s": timing.median_s if timing else None,
            "step_time_low_s": timing.low_s if timing else None,
            "step_time_high_s": timing.high_s if timing else None,
            "tokens_per_s": rate,
            "tokens_per_s_per_device": rate and rate / setting.cluster.devices,
            "mfu": rate and self._mfu(rate, causal=False),
            "mfu_causal": rate and self._mfu(rate, causal=True),
            "hfu": None,
            "memory_bytes": {
                "total": self.outcome.memory_bytes,
                "capacity": setting.cluster.pool.device.memory_bytes,
            },
            "fits": True if self.outcome.losses else None,
            "fits_probability": None,
            "breakdown_s": {},
            "usd_per_hour": None,
            "usd_per_step": None,
            "joules_per_step": None,
        }

    def _mfu(self, rate: float, *, causal: bool) -> float | None:
        outcome = self.outcome
        return utilisation_on(self.grant, outcome.device, outcome.device_bytes, causal=causal).mfu(rate)

    def _origin(self, why_not: str | None) -> dict[str, str]:
        timing = self.timing
        steps = (
            f"measured: median of {timing.steps} steps after {timing.warm_up} of warm-up, rank 0's clock"
            if timing
            else "null: no step was taken"
        )
        spread = (
            "measured: 10 % and 90 % points of these steps, not an interval of a prediction"
            if timing
            else steps
        )
        found = {
            "step_time_s": steps,
            "step_time_low_s": spread,
            "step_time_high_s": spread,
            "fits": "measured: steps were taken" if self.outcome.losses else steps,
            "load_average": "measured: the host's over the minute before the run",
            "losses": "measured: mean over the labels of each step's whole batch, before its update",
            "memory_bytes": "null: the allocator of a CPU counts nothing"
            if self.outcome.memory_bytes is None
            else "measured: most that the allocator gave to tensors, on the rank that had most",
            "mfu": utilisation_on(self.grant, self.outcome.device, self.outcome.device_bytes).origin,
            "breakdown_s": "empty: nothing inside a step is timed",
        }
        return found | ({"predicted": why_not} if why_not else {})
