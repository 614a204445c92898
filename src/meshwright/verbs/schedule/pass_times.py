"""Pass times of a schedule from the user: four numbers, or a file with a row for every stage.

``F,I,W,COMM`` are of one micro-batch over a whole rank's part of the model, and of a message between ranks: a stage
takes its part of them. A CSV file has columns F, I and W and one line for each stage, in order. A YAML file has a list
for each of them and may say ``message`` and ``kept`` (the part of F's memory that I leaves for W):

    F: [1, 1, 1, 1.2]
    I: [1, 1, 1, 1.1]
    W: [1, 1, 1, 1.0]
    message: 0.1
    kept: 0.5

The unit is the reader's own: figures come out in the same one. Times are played as whole numbers of ticks, so that
0.1 ten times is 1.
"""

import csv
import io
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from meshwright.errors import InputError, Problem
from meshwright.plans.files.meshwright_file import FileKind, read_keys
from meshwright.plans.files.yaml_text import read_file
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.integer_times import Ticks, exact, three, ticks_of
from meshwright.schedules.stage_times import StageTimes

SHORTEST, LONGEST = 1e-9, 1e9
EXAMPLE = "1,1,1,0"
PASSES = ("F", "I", "W")
SINGLE = ("message", "kept")
YAML = (".yaml", ".yml")
LISTS = "F: [1, 1], I: [1, 1] and W: [1, 1] for two stages"
STAGE_TIMES = FileKind("file of stage times", (*PASSES, *SINGLE), prefix="stage-times", form=LISTS)
FORM = "columns F,I,W with a line for each stage, or YAML lists F, I and W"


class RankTimes(NamedTuple):
    """F, I and W of one micro-batch over a whole rank, and a message."""

    forward: float
    input: float
    weight: float
    message: float = 0.0


GivenTimes = RankTimes | StageTimes


def times_given(times: str | None, path: str | None) -> GivenTimes:
    """Parse ``--times`` or ``--stage-times``. Raise InputError."""
    if times is not None and path is not None:
        rule = "says the same as --stage-times"
        raise InputError(Problem("times", times, rule, "leave one of the two out; YAML may say `message`"))
    return _stage_times(path) if path is not None else _rank_times(EXAMPLE if times is None else times)


def for_pipeline(given: GivenTimes, ranks: int, ways: StageChains, regroup: bool = False) -> Ticks:
    """Return the times of the stages of a pipeline.

    With ``regroup``, stages of which the given ones are multiples or equal parts take the sums or the parts of their
    times. Raises InputError for another number of stages.
    """
    if isinstance(given, RankTimes):
        share = Fraction(ranks, ways.length)
        seconds = [[share * exact(time)] * ways.stages for time in given[:3]]
        return ticks_of(seconds, exact(given.message))
    stages = len(given.forward)
    if regroup and (fitting := _regrouped(given, ways)) is not None:
        return ticks_of(fitting, exact(given.message), given.kept)
    if stages != ways.stages:
        rule = f"has times of {stages} stages, and the schedule has {ways.stages}"
        raise InputError(Problem("stage-times", stages, rule, f"a line for each of {ways.stages} stages"))
    seconds = [[*map(exact, times)] for times in three(given)]
    return ticks_of(seconds, exact(given.message), given.kept)


def _regrouped(given: StageTimes, ways: StageChains) -> list[list[Fraction]] | None:
    """Return F, I and W of every stage: each chain has all given stages, in equal parts or several as one.

    None where neither is possible.
    """
    stages, length = len(given.forward), ways.length
    if stages == ways.stages or (length % stages and stages % length):
        return None
    parts, merged = max(1, length // stages), max(1, stages // length)
    passes = []
    for times in three(given):
        split = [exact(time) / parts for time in times for _ in range(parts)]
        chain = [sum(split[at : at + merged], Fraction(0)) for at in range(0, len(split), merged)]
        passes.append(chain * ways.chains)
    return passes


def _rank_times(text: str) -> RankTimes:
    problems: list[Problem] = []
    numbers = [_number(word, "times", problems) for word in text.split(",")]
    if len(numbers) not in (3, 4):
        rule = f"has {len(numbers)} numbers, not F,I,W or F,I,W,COMM"
        problems.append(Problem("times", text, rule, EXAMPLE))
    elif not problems and not any(numbers[:3]):
        problems.append(Problem("times", text, "no pass takes any time", EXAMPLE))
    if problems:
        raise InputError(problems)
    return RankTimes(*numbers)


def _stage_times(path: str) -> StageTimes:
    text = read_file(path, "stage-times", FORM)
    columns = _yaml_columns(text) if path.lower().endswith(YAML) else _csv_columns(text)
    problems: list[Problem] = []
    forward, input_, weight = (
        tuple(_number(word, f"stage-times.{name}", problems) for word in columns.pop(name)) for name in PASSES
    )
    single = {name: _number(words[0], f"stage-times.{name}", problems) for name, words in columns.items()}
    if single.get("kept", 0.0) > 1:
        problems.append(Problem("stage-times.kept", single["kept"], "is a part of 1", "kept: 0.5"))
    if not problems and not any((*forward, *input_, *weight)):
        problems.append(Problem("stage-times", path, "no pass takes any time", FORM))
    if problems:
        raise InputError(problems)
    times = StageTimes(forward, input_, weight, single.get("message", 0.0))
    return replace(times, kept=single["kept"]) if "kept" in single else times


def _csv_columns(text: str) -> dict[str, list[object]]:
    try:
        header, *rows = [row for row in csv.reader(io.StringIO(text, newline="")) if any(row)] or [[]]
    except csv.Error as error:
        raise InputError(Problem("stage-times", None, f"cannot be read as CSV: {error}", FORM)) from None
    names = [name.strip() for name in header]
    if sorted(names) != sorted(PASSES) or not rows:
        rule = "is no table with the columns F, I and W"
        raise InputError(Problem("stage-times", ",".join(header)[:80], rule, FORM))
    return {name: [_cell(row, column) for row in rows] for column, name in enumerate(names)}


def _cell(row: list[str], column: int) -> str:
    return row[column] if column < len(row) else ""


def _yaml_columns(text: str) -> dict[str, list[object]]:
    empty: list[Problem] = []
    data = read_keys(text, "stage-times", STAGE_TIMES, empty)
    problems = [
        Problem(f"stage-times.{name}", data[name], "unknown key", f"one of {', '.join((*PASSES, *SINGLE))}")
        for name in data.keys() - {*PASSES, *SINGLE}
    ]
    rows = {name: data.get(name) for name in PASSES}
    columns = {name: list(row) if isinstance(row, tuple) else [] for name, row in rows.items()}
    if len({*map(len, columns.values())}) > 1 or not columns["F"]:
        problems.append(Problem("stage-times", None, "F, I and W are not three lists of one length", LISTS))
    if problems or empty:
        raise InputError([*empty, *problems])
    return columns | {name: [data[name]] for name in SINGLE if name in data}


def _number(word: object, field: str, problems: list[Problem]) -> float:
    """Parse a time; add a problem if it is none."""
    try:
        value = float(word) if isinstance(word, str | int | float) and not isinstance(word, bool) else -1.0
    except (ValueError, OverflowError):
        value = -1.0
    if value == 0 or SHORTEST <= value <= LONGEST:
        return value
    rule = f"is neither 0 nor a number from {SHORTEST:g} to {LONGEST:g}"
    problems.append(Problem(field, word, rule, "a time, such as 1.5"))
    return 0.0
