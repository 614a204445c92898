"""Predict serving runs with their group (model, device, engine) left out of everything that was fitted.

An engine's numbers are those of ``serving-constants.csv``, fitted without the group.
Spreads, which make the intervals, are fitted without the group; its level is 0, or learned from five of its runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from serving_constants import ALL, read_numbers, with_numbers

from meshwright.calibration.level_spreads import fit_spreads
from meshwright.calibration.run_errors import Floats, RunErrors, run_errors
from meshwright.calibration.serving_levels import learned_levels
from meshwright.cost.serving.levels import Effects, Group, Level, Metric, Spreads, level_with
from meshwright.stack.serving.serving_stack import ServingStack, load_serving_stack
from meshwright.validation.serving.predict_rows import RunTimes, predict_rows
from meshwright.validation.serving.predict_serving import levelled_predictions
from meshwright.validation.serving.serving_prediction import Outcome, ServingPrediction
from meshwright.validation.serving.serving_row import ServingRow
from meshwright.validation.serving.serving_summary import FIGURES

LEARNED, DRAWS = 5, 50


@dataclass(frozen=True)
class LeftOut:
    """Runs with their times by constants of other groups, their errors, and each group's spreads of others."""

    rows: tuple[ServingRow, ...]
    times: RunTimes
    errors: RunErrors
    spreads: dict[Group, Spreads]

    def level(self, number: int, effects: Effects) -> Level:
        """Return the level of a run from effects that its group learned."""
        group = self.errors.groups[number]
        pools = bool(self.errors.disaggregated[number])
        return level_with(group, effects, self.spreads[group], pools, "learned runs")

    def predicted(self, numbers: Sequence[int], effects: Effects) -> list[Outcome]:
        """Return the predictions of some runs of one group."""
        inputs = [self.rows[number].inputs for number in numbers]
        levels = [self.level(number, effects) for number in numbers]
        return levelled_predictions(inputs, _take(self.times, numbers), levels)


def left_out(rows: Sequence[ServingRow]) -> LeftOut:
    """Return all runs with their groups left out."""
    times = times_without_groups(rows)
    errors = run_errors(rows, times)
    spreads = {}
    for group, runs in errors.members().items():
        others = np.setdiff1d(np.arange(len(rows)), runs)
        spreads[group] = fit_spreads(errors.take(others))
    return LeftOut(tuple(rows), times, errors, spreads)


def times_without_groups(rows: Sequence[ServingRow]) -> RunTimes:
    """Return the times of runs, each by the numbers of its engine that were fitted without its group."""
    numbers = read_numbers()
    members: dict[Group, list[int]] = {}
    for number, row in enumerate(rows):
        members.setdefault(Group(*row.inputs.level_group), []).append(number)
    parts: list[tuple[list[int], RunTimes]] = []
    for group, chosen in members.items():

        def engine_of(name: str, group: Group = group) -> ServingStack:
            fitted = numbers.get(group) or numbers.get(ALL._replace(engine=name))
            return with_numbers(name, fitted) if fitted else load_serving_stack(name)

        parts.append((chosen, predict_rows([rows[number].inputs for number in chosen], engine_of)))
    order = np.argsort(np.concatenate([chosen for chosen, _ in parts]))
    joined = {
        field.name: np.concatenate([np.asarray(getattr(one, field.name)) for _, one in parts])[order]
        for field in fields(RunTimes)
    }
    return RunTimes(**joined | {"reasons": tuple(map(str, joined["reasons"]))})


def _take(times: RunTimes, numbers: Sequence[int]) -> RunTimes:
    chosen = {field.name: np.asarray(getattr(times, field.name))[list(numbers)] for field in fields(RunTimes)}
    return RunTimes(**chosen | {"reasons": tuple(map(str, chosen["reasons"]))})


def without_levels(known: LeftOut) -> list[ServingPrediction]:
    """Return the predictions of all runs with a level of 0."""
    levels = [known.level(number, {}) for number in range(len(known.rows))]
    found = levelled_predictions([row.inputs for row in known.rows], known.times, levels)
    made = [one for one in found if not isinstance(one, str)]
    assert len(made) == len(found), "runs without a prediction are left out before"
    return made


@dataclass(frozen=True)
class Draw:
    """Logarithms of measured over predicted of the runs of a group that were not drawn.

    ``before``: without a level, ``after``: with that of the drawn runs, ``shifted``: by the median of their errors.
    ``inside`` the 80 % interval of after.
    """

    before: Floats
    after: Floats
    shifted: Floats
    inside: Floats


def draws(known: LeftOut, metric: Metric, seed: int = 0) -> dict[Group, list[Draw]]:
    """Return ``DRAWS`` draws of five runs with a metric, of every group that has more."""
    random = np.random.default_rng(seed)
    found: dict[Group, list[Draw]] = {}
    for group, runs in known.errors.members().items():
        measured = [n for n in runs.tolist() if getattr(known.rows[n].measured, FIGURES[metric]) is not None]
        if len(measured) > LEARNED:
            found[group] = [
                _draw(known, metric, group, measured, random.permutation(measured).tolist())
                for _ in range(DRAWS)
            ]
    return found


def _draw(known: LeftOut, metric: Metric, group: Group, measured: list[int], order: list[int]) -> Draw:
    drawn, rest = order[:LEARNED], order[LEARNED:]
    effects = learned_levels(known.errors.take(drawn), known.spreads[group]).get(group, {})
    after = [*_logs(known, metric, rest, known.predicted(rest, effects))]
    before = np.array([log for log, _ in _logs(known, metric, rest, known.predicted(rest, {}))])
    of_drawn = [log for log, _ in _logs(known, metric, drawn, known.predicted(drawn, {}))]
    return Draw(
        before=before,
        after=np.array([log for log, _ in after]),
        shifted=before - float(np.median(of_drawn)),
        inside=np.array([inside for _, inside in after]),
    )


def _logs(
    known: LeftOut, metric: Metric, numbers: Sequence[int], predicted: Sequence[Outcome]
) -> Iterator[tuple[float, bool]]:
    """Yield the logarithm of measured over predicted, and whether the interval holds it."""
    for number, one in zip(numbers, predicted, strict=True):
        value = getattr(known.rows[number].measured, FIGURES[metric])
        guess = None if isinstance(one, str) else getattr(one, FIGURES[metric])
        if value is not None and guess is not None:
            yield float(np.log(value / guess.value)), guess.low <= value <= guess.high
