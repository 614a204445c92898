"""Files of levels that ``calibrate`` learned from a user's runs, for ``--calibration FILE``.

    serving_levels: 1
    runs: runs.csv
    levels:
      - {model: llama-3.1-70b, device: h100-sxm-80gb, engine: vllm, tpot: {log_factor: 0.08, doubt: 0.03, rows: 12}}

Each metric that was measured has its level as the logarithm of measured over predicted values, the standard deviation
of the doubt about it, and the runs behind it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from meshwright.errors import InputError, Problem
from meshwright.plans.files.meshwright_file import FileKind, read_keys, write_file
from meshwright.plans.files.strict_types import Strict, one_of
from meshwright.plans.files.validation_messages import validated
from meshwright.plans.files.yaml_text import read_file
from meshwright.stack.serving.serving_stack import ENGINES

LARGEST = 5.0
"""Logarithm of a factor beyond which a file is refused: 150."""
VERSION = 1
HINT = "a file that `meshwright calibrate RUNS.csv -o FILE` wrote from a table of serving runs"
LEVEL_FILE = FileKind("calibration", ("serving_levels", "runs", "levels"), form=HINT)
Name = Annotated[str, Field(min_length=1, max_length=200)]
EFFECT = "{log_factor: 0.08, doubt: 0.03, rows: 12}"


class EffectInFile(Strict):
    """The level of one metric."""

    log_factor: Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
    doubt: Annotated[float, Field(gt=0, le=LARGEST)]
    rows: Annotated[int, Field(ge=1)]


class GroupInFile(Strict):
    """The levels of a model on a device under an engine."""

    model: Name
    device: Name
    engine: Annotated[str, one_of(lambda: ENGINES)]
    ttft: EffectInFile | None = None
    tpot: EffectInFile | None = None
    throughput: EffectInFile | None = None

    @property
    def group(self) -> tuple[str, str, str]:
        """Model, device and engine."""
        return self.model, self.device, self.engine


class LevelFile(Strict):
    """A file of levels. ``runs``: the table from which they were learned."""

    examples: ClassVar[Mapping[str, str]] = {
        "serving_levels": f"serving_levels: {VERSION}",
        "runs": "runs: runs.csv",
        "levels": f"levels: [{{model: llama-3.1-8b, device: h200-sxm-141gb, engine: vllm, tpot: {EFFECT}}}]",
        "ttft": f"ttft: {EFFECT}",
        "tpot": f"tpot: {EFFECT}",
        "throughput": f"throughput: {EFFECT}",
    }
    serving_levels: Literal[1]
    runs: Name
    levels: tuple[GroupInFile, ...] = Field(min_length=1)


def level_file_text(file: LevelFile) -> str:
    """Return the text of a file of levels."""
    return write_file(file.to_data())


def read_level_file(path: str | Path) -> LevelFile:
    """Return the levels of a file. Raises InputError with every problem of it."""
    text = read_file(path, "calibration", HINT)
    problems: list[Problem] = []
    file = validated(LevelFile, read_keys(text, str(path), LEVEL_FILE, problems), others=problems)
    wrong = [*_problems(file)]
    if wrong:
        raise InputError(wrong)
    return file


def _problems(file: LevelFile) -> Iterator[Problem]:
    """Yield groups that have no level, or stand in the file twice."""
    seen: set[tuple[str, str, str]] = set()
    for place, one in enumerate(file.levels):
        if one.ttft is one.tpot is one.throughput is None:
            rule = "has none of ttft, tpot, throughput"
            yield Problem(f"levels.{place}", one.model, rule, f"tpot: {EFFECT}")
        if one.group in seen:
            rule = f"has {' '.join(one.group)}, which stands there twice"
            yield Problem(f"levels.{place}", one.model, rule, "take one of them out")
        seen.add(one.group)
