"""Read and write files of levels that were learned from a user's runs (``stack/serving/level_file.py``)."""

from pathlib import Path

from meshwright.cost.serving.levels import METRICS, Effect, Group, LevelTable
from meshwright.stack.serving.level_file import (
    EffectInFile,
    GroupInFile,
    LevelFile,
    level_file_text,
    read_level_file,
)

DIGITS = 6


def read_levels(path: str | Path) -> LevelTable:
    """Return the levels of a file for ``--calibration``. Raises InputError with every problem of it."""
    file = read_level_file(path)
    groups = {}
    for one in file.levels:
        found = {name: getattr(one, name) for name in METRICS}
        effects = {
            name: Effect(level.log_factor, level.doubt, level.rows) for name, level in found.items() if level
        }
        groups[Group(*one.group)] = effects
    return LevelTable(groups, file.runs)


def given_levels(path: str | Path | None) -> LevelTable | None:
    """Return the levels of a file, if one is given. Raises InputError with every problem of it."""
    return None if path is None else read_levels(path)


def levels_text(table: LevelTable) -> str:
    """Return levels as the text of a file."""
    groups = tuple(
        GroupInFile(
            model=group.model,
            device=group.device,
            engine=group.engine,
            ttft=_in_file(effects.get("ttft")),
            tpot=_in_file(effects.get("tpot")),
            throughput=_in_file(effects.get("throughput")),
        )
        for group, effects in sorted(table.groups.items())
    )
    return level_file_text(LevelFile(serving_levels=1, runs=table.origin, levels=groups))


def _in_file(effect: Effect | None) -> EffectInFile | None:
    if effect is None:
        return None
    return EffectInFile(
        log_factor=round(effect.log_factor, DIGITS), doubt=round(effect.doubt, DIGITS), rows=effect.rows
    )
