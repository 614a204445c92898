"""The Report: time, memory and cost of a plan. One type for prediction, emulation and measurement, with the origin.

Field names are the public JSON keys. A number that can not be computed is None, and ``origin`` says why; every
other entry of ``origin`` says where the number comes from.
"""

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, Literal

Unit = Literal["step", "round", "iteration", "trace", "request"]
Kind = Literal["predicted", "simulated", "emulated", "measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One step of a plan.

    Times in seconds, memory in bytes (``memory_bytes`` is the worst device's; its ``stages`` list has one entry per
    pipeline rank), money in US dollars, energy in joules. Low and high bound an 80 % interval;
    ``interval`` has the parts of its error and how to narrow it (``cost/uncertainty``). ``goodput`` and
    ``training`` are what many steps come to where nodes fail, as ``economy/report_with_training_cost.py`` fills them
    in for predictions. ``churn`` has a row for each routing around lost peers, where churn is assumed. ``remarks`` are
    doubts about the plan; they are no part of what a step costs, and reports that differ in them alone are equal.
    """

    kind: Kind
    unit: Unit
    step_time_s: float
    step_time_low_s: float | None
    step_time_high_s: float | None
    tokens_per_s: float
    tokens_per_s_per_device: float
    mfu: float | None
    mfu_causal: float | None
    hfu: float | None
    memory_bytes: dict[str, Any]
    fits: bool
    fits_probability: float | None
    breakdown_s: dict[str, float]
    usd_per_hour: float | None
    usd_per_step: float | None
    joules_per_step: float | None
    interval: dict[str, Any] | None = None
    steps_per_round: int | None = 1
    utilisation: float | None = None
    synchronise: list[dict[str, Any]] | None = None
    goodput: dict[str, Any] | None = None
    training: dict[str, Any] | None = None
    churn: list[dict[str, Any]] | None = None
    origin: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = field(default=(), compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingReport(Report):
    """One request of a plan that serves, in its steady state: ``step_time_s`` is its mean latency.

    ``serving`` has the means of requests and the pools. A latency that does not exist, as above capacity, is NaN here
    and null in JSON.
    """

    serving: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return {name: _finite(value) for name, value in asdict(self).items()}


def _finite(value: Any) -> Any:
    """Return data with None for numbers that are not finite."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value
