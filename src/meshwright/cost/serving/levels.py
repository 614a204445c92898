"""Levels of served models: constant factors of measured over predicted values, as random effects.

Engines' images and settings that no plan names move all times of a (model, device, engine) by a factor. In logarithms

    log(measured/predicted) = level(model, device, engine) + rest

The level of a group with measured runs is their mean error, shrunk to 0 (``calibration/level_estimate.py``); that of a
group without runs is 0. An 80 % interval is value·exp(±1.28·sd). For a group without runs sd is that of groups which
were left out in turn; for one with runs sd² = doubt² + rest², the doubt about the level and the scatter of single runs
around it. Both depend on the engine and on whether prefill has a pool of its own (``data/level_spreads.csv``). Levels
are those of a user's runs (``level_calibration.py``), else those of ``data/levels.csv``, which
``benchmarks/serving_levels.py`` fits to the published runs of measured_serving.csv (2026-11-28).

Levels keep Little's law in a closed loop: requests/s follow from the levelled times, N/(TTFT + (osl − 1)·TPOT). Where
requests wait for room the batch is what fits, and so the wait grows by TPOT's factor. Open arrivals keep their rate,
and the largest batch that fits has throughput's own factor.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import hypot
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.uncertainty.interval import QUANTILE
from meshwright.program.local_shape import Number

Metric = Literal["ttft", "tpot", "throughput"]
METRICS: tuple[Metric, ...] = ("ttft", "tpot", "throughput")
ANY = "any"
"""An engine of another name, and pools of either kind, in ``data/level_spreads.csv``."""
NO_LEVEL = "none: no measured runs of this model, device and engine"


class Group(NamedTuple):
    """Runs with a common level. ``engine``: its family."""

    model: str
    device: str
    engine: str

    def __str__(self) -> str:
        return f"{self.model} on {self.device} under {self.engine}"


@dataclass(frozen=True, slots=True)
class LevelOf:
    """The level of one metric: a levelled value is exp(``log_factor``) times the predicted one.

    ``log_sd``: standard deviation of the logarithm of measured over levelled values, such that 1.28 of them hold 80 %.
    """

    log_factor: float
    log_sd: float

    @property
    def factor(self) -> float:
        """The factor of a predicted value."""
        return float(np.exp(self.log_factor))


@dataclass(frozen=True, slots=True)
class Level:
    """The levels of a (model, device, engine), from so many measured runs of it; ``name`` says whose they are."""

    ttft: LevelOf
    tpot: LevelOf
    throughput: LevelOf
    rows: int
    name: str


@dataclass(frozen=True, slots=True)
class Effect:
    """The level of one metric of a group, the standard deviation of the doubt about it, and the runs behind it."""

    log_factor: float
    doubt: float
    rows: int


Effects = Mapping[Metric, Effect]


@dataclass(frozen=True, slots=True)
class LevelTable:
    """The levels of groups; ``origin`` says from which runs. A group has effects of the metrics that were measured."""

    groups: Mapping[Group, Effects]
    origin: str


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations of one metric's logarithm.

    ``between`` levels of groups; ``scale`` of runs around their level, without far ones; ``rest`` the same with them,
    and ``unknown`` of runs of groups without a level, such that 1.28 of them hold 80 %.
    """

    between: float
    scale: float
    rest: float
    unknown: float


class SpreadKey(NamedTuple):
    """A metric under an engine, with ``one`` pool or ``two``; ``any`` of both: another engine."""

    metric: Metric
    engine: str
    pools: str


Spreads = Mapping[SpreadKey, Spread]


def level_of(
    model: str,
    device: str,
    engine: str,
    calibration: LevelTable | None = None,
    *,
    disaggregated: bool = False,
) -> Level:
    """Return the level of a model on a device under an engine's family; that of a calibration goes first."""
    group = Group(model, device, engine)
    effects: dict[Metric, Effect] = {}
    origins = []
    for table in (shipped_levels(), calibration):
        if table is not None and group in table.groups:
            effects |= table.groups[group]
            origins.append(table.origin)
    return level_with(group, effects, shipped_spreads(), disaggregated, " and ".join(origins))


def level_with(group: Group, effects: Effects, spreads: Spreads, disaggregated: bool, origin: str) -> Level:
    """Return the level of a group with some effects.

    A metric without one has the doubt of an unknown group, and the factor that Little's law tells of another metric:
    times are the inverse of throughput, and throughput is that of the time per output token.
    """
    inverse: dict[Metric, Metric] = {"ttft": "throughput", "tpot": "throughput", "throughput": "tpot"}

    def of(metric: Metric) -> LevelOf:
        spread, effect = spread_in(spreads, metric, group.engine, disaggregated), effects.get(metric)
        if effect is not None:
            return LevelOf(effect.log_factor, hypot(effect.doubt, spread.rest))
        other = effects.get(inverse[metric])
        return LevelOf(0.0 if other is None else -other.log_factor, spread.unknown)

    rows = max((effect.rows for effect in effects.values()), default=0)
    name = f"{group}, from {origin}" if effects else NO_LEVEL
    return Level(ttft=of("ttft"), tpot=of("tpot"), throughput=of("throughput"), rows=rows, name=name)


def interval(value: Number, level: LevelOf) -> tuple[Number, Number]:
    """Return the ends of the 80 % interval of a levelled value."""
    factor = np.exp(QUANTILE * level.log_sd)
    return np.asarray(value) / factor, np.asarray(value) * factor


class ServedMeans(NamedTuple):
    """Mean seconds to the first token and per further token, and requests/s, of runs. NaN: there is none."""

    ttft_s: NDArray[Any]
    tpot_s: NDArray[Any]
    requests_per_s: NDArray[Any]


@dataclass(frozen=True, slots=True)
class LoadKind:
    """The loads of runs, as ``ReplicaLoad`` has them.

    ``steps``: tokens after the first one; ``waits`` where requests of a closed loop wait for room.
    """

    concurrency: Number
    rate_per_s: Number
    steps: Number
    waits: NDArray[np.bool_]


def levelled(means: ServedMeans, load: LoadKind, level: Level) -> ServedMeans:
    """Return means with their levels, in agreement with Little's law."""
    clients, steps = np.asarray(load.concurrency, float), np.asarray(load.steps)
    tpot = means.tpot_s * level.tpot.factor
    ttft = means.ttft_s * np.where(load.waits, level.tpot.factor, level.ttft.factor)
    closed = np.isnan(load.rate_per_s)
    further = np.where(steps > 0, steps * np.nan_to_num(tpot), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        in_loop = clients / (ttft + further)
    unlimited = means.requests_per_s * level.throughput.factor
    opened = np.where(np.isinf(load.rate_per_s), unlimited, means.requests_per_s)
    return ServedMeans(ttft, tpot, np.where(closed, in_loop, opened))


@cache
def shipped_levels() -> LevelTable:
    """Return the levels of ``data/levels.csv``."""
    groups: dict[Group, dict[Metric, Effect]] = {}
    for row in _data_rows("levels.csv"):
        effect = Effect(float(row["log_factor"]), float(row["doubt"]), int(row["rows"]))
        group = Group(row["model"], row["device"], row["engine"])
        groups.setdefault(group, {})[_metric(row["metric"])] = effect
    return LevelTable(groups, "published runs")


def spread_in(spreads: Spreads, metric: Metric, engine: str, disaggregated: bool) -> Spread:
    """Return one of some spreads.

    Throughput with too few runs has the spreads of the time per output token, another engine those of any.
    """
    pools = "two" if disaggregated else "one"
    names: tuple[Metric, ...] = (metric, "tpot") if metric == "throughput" else (metric,)
    found = next((spreads[key] for name in names if (key := SpreadKey(name, engine, pools)) in spreads), None)
    return found or spreads[SpreadKey(metric, ANY, ANY)]


@cache
def shipped_spreads() -> Spreads:
    """Return the spreads of ``data/level_spreads.csv``."""
    return {
        SpreadKey(_metric(row["metric"]), row["engine"], row["pools"]): Spread(
            float(row["between"]), float(row["scale"]), float(row["rest"]), float(row["unknown"])
        )
        for row in _data_rows("level_spreads.csv")
    }


def _metric(text: str) -> Metric:
    return next(name for name in METRICS if name == text)


def _data_rows(name: str) -> list[dict[str, str]]:
    with (files("meshwright.cost.serving") / "data" / name).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
