"""A plan's prediction as additive parts, for comparison with another plan's.

Parts of a step's time sum to the step and entries of the fullest device's memory to its peak, so differences of parts
sum to the difference of the whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from meshwright.cluster.cluster import Cluster
from meshwright.cost.closed_form.evaluate_plans import Estimates, Floats
from meshwright.cost.memory.memory_breakdown import KEYS, fits, usable_device_bytes
from meshwright.cost.plan_report import Estimate
from meshwright.plans.setting import Setting
from meshwright.search.choice_reasons import relative_step_time
from meshwright.units import format_bytes, format_seconds

NAMES: Mapping[str, str] = {
    "tp": "tp exchanges",
    "cp": "cp exchanges",
    "ep": "ep exchanges",
    "dp": "dp exchanges",
    "pp": "pp messages",
}
"""Parts of a step in words; the others are words already. Exchanges are what of them is exposed."""
MOST_PARTS = 4
SMALL = 0.03
"""What is less than this part of all differences together is not told."""


@dataclass(frozen=True, slots=True)
class PredictionParts:
    """Seconds of a step by part, and bytes of the fullest device by kind."""

    parts: Mapping[str, float]
    ledger: Mapping[str, float]
    cluster: Cluster

    @property
    def step_s(self) -> float:
        """Seconds per step."""
        return sum(self.parts.values())

    @property
    def total_bytes(self) -> float:
        """Peak of the fullest device."""
        return sum(self.ledger.values())

    @property
    def usable_bytes(self) -> float:
        """Return the usable part of the device's memory in bytes."""
        return usable_device_bytes(self.cluster)

    @property
    def capacity_bytes(self) -> int:
        """Return the device's memory in bytes."""
        return self.cluster.pool.device.memory_bytes

    @property
    def fits(self) -> bool:
        """Return true if the peak is within the usable memory."""
        return bool(fits(self.total_bytes, self.cluster))


def prediction_parts(estimate: Estimate, setting: Setting) -> PredictionParts:
    """Of one plan that was estimated."""
    worst = max(estimate.ledgers, key=lambda ledger: sum(ledger.values()))
    return PredictionParts(estimate.parts, worst, setting.cluster)


def forecast_at(estimates: Estimates, of_parts: Mapping[str, Floats], row: int) -> PredictionParts:
    """Of one of many plans that were estimated together; ``of_parts`` are the seconds of all of them by part."""
    parts = {name: float(seconds[row]) for name, seconds in of_parts.items()}
    ledger = {key: float(estimates.memory[key][row]) for key in KEYS}
    return PredictionParts(parts, ledger, estimates.cluster)


def differences(own: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Other less own, part by part, the largest first; parts that are equal are left out."""
    names = dict.fromkeys([*own, *other])
    found = {name: other.get(name, 0.0) - own.get(name, 0.0) for name in names}
    return dict(sorted(((n, d) for n, d in found.items() if d), key=lambda item: -abs(item[1])))


def seconds_in_words(of: Mapping[str, float]) -> str:
    """``+410.0 ms bubble, −120.0 ms tp exchanges``: the differences that make up most of it."""
    return ", ".join(f"{_signed(of[name], format_seconds)} {NAMES.get(name, name)}" for name in _largest(of))


def bytes_in_words(of: Mapping[str, float]) -> str:
    """``+3.20 GiB activations, −1.00 GiB optimizer``."""
    return ", ".join(f"{_signed(of[name], format_bytes)} {name}" for name in _largest(of))


def _largest(of: Mapping[str, float]) -> Sequence[str]:
    """Return the names of the differences that are shown."""
    whole = fsum(map(abs, of.values()))
    return [name for name, value in of.items() if abs(value) >= SMALL * whole][:MOST_PARTS]


def _signed(value: float, formatted: Callable[[float], str]) -> str:
    return ("+" if value > 0 else "−") + formatted(abs(value))


def compared_times(own_s: float, other_s: float, tie_ratio: float) -> str:
    """Format the other plan's time against the own, with ties named: ``43.1 s, 1.1% slower, a tie``."""
    text = relative_step_time(other_s, own_s)
    return text if text.endswith("equal") or not is_tie(own_s, other_s, tie_ratio) else f"{text}, a tie"


def is_tie(one_s: float, other_s: float, tie_ratio: float) -> bool:
    """Return true if the ratio of two predictions is inside its 80 % interval."""
    return max(one_s, other_s) <= tie_ratio * min(one_s, other_s)
