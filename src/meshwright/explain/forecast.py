"""What a plan is predicted to come to, as parts that can be laid beside those of another plan.

Parts of a step's time sum to the step and entries of the fullest device's memory to its peak, so differences of parts
sum to the difference of the whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from meshwright.cost.constants import constants
from meshwright.cost.evaluate import Estimates, Floats
from meshwright.cost.memory import KEYS, fits
from meshwright.cost.predict import Estimate
from meshwright.plan.setting import Setting
from meshwright.search.reasons import against
from meshwright.units import format_bytes, format_seconds

NAMES: Mapping[str, str] = {
    "tp": "tp exchanges",
    "cp": "cp exchanges",
    "ep": "ep exchanges",
    "dp": "dp exchanges",
    "pp": "pp messages",
}
"""Parts of a step in words; the others are words already. Exchanges are what of them is exposed."""
SHOWN = 4
SMALL = 0.03
"""What is less than this part of all differences together is not told."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds of a step by part, and bytes of the fullest device by kind."""

    parts: Mapping[str, float]
    ledger: Mapping[str, float]
    capacity_bytes: float

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
        """What a peak may be of the device's memory."""
        return constants()["usable_memory"] * self.capacity_bytes

    @property
    def fits(self) -> bool:
        """Whether the peak is below what is usable."""
        return bool(fits(self.total_bytes, self.capacity_bytes))


def forecast_of(estimate: Estimate, setting: Setting) -> Forecast:
    """Of one plan that was estimated."""
    worst = max(estimate.ledgers, key=lambda ledger: sum(ledger.values()))
    return Forecast(estimate.parts, worst, setting.cluster.pool.device.memory_bytes)


def forecast_at(estimates: Estimates, of_parts: Mapping[str, Floats], row: int) -> Forecast:
    """Of one of many plans that were estimated together; ``of_parts`` are the seconds of all of them by part."""
    parts = {name: float(seconds[row]) for name, seconds in of_parts.items()}
    ledger = {key: float(estimates.memory[key][row]) for key in KEYS}
    return Forecast(parts, ledger, estimates.capacity_bytes)


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
    """The names of the differences that are told."""
    whole = fsum(map(abs, of.values()))
    return [name for name, value in of.items() if abs(value) >= SMALL * whole][:SHOWN]


def _signed(value: float, shown: Callable[[float], str]) -> str:
    return ("+" if value > 0 else "−") + shown(abs(value))


def compared_times(own_s: float, other_s: float, tie_ratio: float) -> str:
    """The other plan's time beside the own, a tie called one: ``43.1 s, 1.1% slower, a tie``."""
    said = against(other_s, own_s)
    return said if said.endswith("equal") or not is_tie(own_s, other_s, tie_ratio) else f"{said}, a tie"


def is_tie(one_s: float, other_s: float, tie_ratio: float) -> bool:
    """Whether two predictions can not be told apart: their ratio is inside its 80 % interval."""
    return max(one_s, other_s) <= tie_ratio * min(one_s, other_s)
