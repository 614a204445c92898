"""Levels of served models: constant factors of measured over predicted values, as random effects.

Engines, images and settings that no plan names move all times of a (model, device, engine) by a factor. In logarithms

    log(measured/predicted) = level(model, device, engine) + rest,   level ~ N(0, between²),   rest ~ N(0, within²)

The level of a group with n measured runs is their mean error, shrunk by n·between²/(n·between² + within²); that of a
group without runs is 0. Both leave a doubt, which is part of the interval: of the level itself, and of the rest.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from meshwright.program.local_shape import Number

QUANTILE = 1.2816
"""Standard deviations from the middle of a normal distribution to its 90 % quantile."""
Metric = Literal["ttft", "tpot", "throughput"]
METRICS: tuple[Metric, ...] = ("ttft", "tpot", "throughput")


@dataclass(frozen=True, slots=True)
class LevelOf:
    """The level of one metric: a levelled value is exp(``log_factor``) times the predicted one.

    ``log_sd``: standard deviation of the logarithm of measured over levelled values, of level and rest together.
    """

    log_factor: float
    log_sd: float

    def of(self, value: Number) -> Number:
        """Return the levelled value."""
        return np.exp(self.log_factor) * np.asarray(value)


@dataclass(frozen=True, slots=True)
class Level:
    """The levels of a (model, device, engine), from so many measured runs of it; ``name`` says whose they are."""

    ttft: LevelOf
    tpot: LevelOf
    throughput: LevelOf
    rows: int
    name: str


@dataclass(frozen=True, slots=True)
class LevelTable:
    """Levels of groups by (model, device, engine), and the one of a group without runs."""

    groups: dict[tuple[str, str, str], Level]
    unknown: Level


UNKNOWN = Level(LevelOf(0.0, 0.6), LevelOf(0.0, 0.3), LevelOf(0.0, 0.3), 0, "none")


def level_of(model: str, device: str, engine: str, calibration: LevelTable | None = None) -> Level:
    """Return the level of a model on a device under an engine's family; that of a calibration goes first."""
    tables = [table for table in (calibration,) if table is not None]
    group = (model, device, engine)
    return next((table.groups[group] for table in tables if group in table.groups), UNKNOWN)


def interval(value: Number, level: LevelOf) -> tuple[Number, Number]:
    """Return the ends of the 80 % interval of a levelled value."""
    factor = np.exp(QUANTILE * level.log_sd)
    return np.asarray(value) / factor, np.asarray(value) * factor
