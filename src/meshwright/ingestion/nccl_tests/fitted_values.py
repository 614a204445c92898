"""Results of a fit of collectives: each value by the name that ``calibration`` of a cluster file has for it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from meshwright.cost.constants import CURVES
from meshwright.ingestion.nccl_tests.predicted_times import PROCESS_LATENCY

CURVE_WORDS: Mapping[str, tuple[str, str]] = {
    "latency_s": ("latency of two ranks", "second"),
    "latency_per_rank_s": ("latency of each further rank", "second"),
    "efficiency": ("plateau of bus bandwidth, as a share of the link's rate", "fraction"),
    "saturation_bytes": ("volume at which the plateau is near", "byte"),
}
"""Description of each number of a curve inside a fast domain, and its unit."""

WORDS: Mapping[str, tuple[str, str]] = {
    **{f"{curve}.{name}": words for curve in CURVES for name, words in CURVE_WORDS.items()},
    PROCESS_LATENCY: ("latency that a process for each device adds", "second"),
    "nic_latency_s": ("latency of leaving the domain", "second"),
    "nic_efficiency": ("share of the cards' rate", "fraction"),
    "nic_saturation_bytes": ("volume at which the plateau is near", "byte"),
    "p2p_latency_s": ("latency of a message", "second"),
    "p2p_scaleup_efficiency": ("share of the link's rate", "fraction"),
    "p2p_nic_efficiency": ("share of the card's rate", "fraction"),
}
"""Description of each constant, and its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A constant that measurements identify. ``at_bound``: it ended at a bound of its range, so do not trust it."""

    what: str
    name: str
    value: float
    present: float
    unit: str
    at_bound: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFit:
    """A fit to some collectives, and the error of the fitted formula (fractions of the time)."""

    where: str
    collectives: tuple[str, ...] = ()
    measurements: int = 0
    error_mean: float = 0.0
    error_max: float = 0.0
    values: tuple[Fitted, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCollectives:
    """Fits in the order in which they build on each other, and remarks on open points."""

    cluster: str
    fits: tuple[CollectiveFit, ...]
    remarks: tuple[str, ...]

    @property
    def values(self) -> tuple[Fitted, ...]:
        """All fitted constants; a later fit may have moved one again."""
        return tuple(value for fit in self.fits for value in fit.values)

    @property
    def calibration(self) -> dict[str, float]:
        """Entries for ``calibration`` in the cluster file; values that ended at a bound are left out."""
        return {value.name: value.value for value in self.values if not value.at_bound}

    def to_json(self) -> dict[str, Any]:
        """Return the fits as JSON-ready data."""
        return asdict(self) | {"calibration": self.calibration}


def fitted(label: str, name: str, value: float, present: float, *, at_bound: bool = False) -> Fitted:
    """Return a value for an entry of ``WORDS``."""
    words, unit = WORDS[name]
    what = f"{label}: {words}"
    return Fitted(what=what, name=name, value=value, present=present, unit=unit, at_bound=at_bound)
