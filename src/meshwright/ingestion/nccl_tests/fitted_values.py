"""Results of a fit of collectives: each value with its constant, or marked as having none."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from meshwright.cluster.file_schema import CalibratedName
from meshwright.cost.constants import constants
from meshwright.ingestion.nccl_tests.predicted_times import PROCESS_LATENCY

WORDS: Mapping[str, tuple[str, str]] = {
    "latency_s": ("latency of two ranks", "second"),
    "bandwidth_bytes_per_s": ("plateau of bus bandwidth", "byte per second"),
    "saturation_bytes": ("volume at which the plateau is near", "byte"),
    PROCESS_LATENCY: ("what a process for each device adds to the latency", "second"),
    "nic_latency_s": ("latency of leaving the domain", "second"),
    "nic_efficiency": ("share of the cards' rate", "fraction"),
    "nic_saturation_bytes": ("volume at which the plateau is near", "byte"),
    "p2p_latency_s": ("latency of a message", "second"),
    "p2p_scaleup_efficiency": ("share of the link's rate", "fraction"),
    "p2p_nic_efficiency": ("share of the card's rate", "fraction"),
}
"""Description of each constant, and its unit."""

Place = Literal["cluster file", "constants", "no constant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A value that measurements identify. ``name`` is the cost model's constant, empty if it has none.

    ``place``: a cluster file carries it under ``calibration``; only the cost model knows it; or neither.
    ``at_bound``: it ended at a bound of its range, and no cluster file should carry it.
    """

    what: str
    name: str
    value: float
    present: float
    unit: str
    place: Place
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
    """Fits of everything, fits of what a cluster file carries with the rest fixed, and remarks on open points."""

    cluster: str
    fits: tuple[CollectiveFit, ...]
    carried: tuple[CollectiveFit, ...]
    remarks: tuple[str, ...]

    @property
    def constants(self) -> dict[str, float]:
        """Values with a constant in the cost model, to be used together.

        ``hardware_times_for`` and ``with_values`` take them.
        """
        return _named(self.fits)

    @property
    def calibration(self) -> dict[str, float]:
        """Entries for ``calibration`` in the cluster file."""
        return _named(self.carried, trusted=True)

    def to_json(self) -> dict[str, Any]:
        """Return the fits as JSON-ready data."""
        return asdict(self) | {"calibration": self.calibration, "constants": self.constants}


def fitted(label: str, name: str, value: float, present: float, *, at_bound: bool = False) -> Fitted:
    """Return a value for an entry of ``WORDS``."""
    words, unit = WORDS[name]
    place: Place = "no constant"
    if name in get_args(CalibratedName):
        place = "cluster file"
    elif name in constants():
        place = "constants"
    own = name if place != "no constant" else ""
    return Fitted(
        what=f"{label}: {words}",
        name=own,
        value=value,
        present=present,
        unit=unit,
        place=place,
        at_bound=at_bound,
    )


def _named(fits: Sequence[CollectiveFit], *, trusted: bool = False) -> dict[str, float]:
    """Return values by their constants' names; ``trusted`` leaves out values that ended at a bound."""
    return {
        value.name: value.value
        for fit in fits
        for value in fit.values
        if value.name and not (trusted and value.at_bound)
    }
