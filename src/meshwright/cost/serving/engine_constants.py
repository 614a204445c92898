"""The three fitted constants of each serving engine, from ``data/engines.csv``.

host_s      seconds of the host in each stage of an iteration that no kernel hides
sequence_s  seconds more for each sequence of the iteration
prompt_s    seconds of a prompt outside iterations: HTTP, tokens, scheduling

An engine of another name has those of ``generic-serving``.
"""

from functools import cache
from typing import NamedTuple

from meshwright.cost.serving.hardware_times import data_rows, serving_constants
from meshwright.cost.serving.iteration import Overheads
from meshwright.cost.serving.steady_state import Waiting

GENERIC_ENGINE = "generic-serving"


class EngineConstants(NamedTuple):
    """Overheads of iterations and of waiting prompts of one engine. ``fitted``: False for a stand-in."""

    overheads: Overheads
    waiting: Waiting
    fitted: bool


@cache
def engine_constants(engine: str) -> EngineConstants:
    """Return the numbers of an engine by its name without release."""
    rows = {row["engine"]: row for row in data_rows("engines.csv")}
    row = rows.get(engine, rows[GENERIC_ENGINE])
    return EngineConstants(
        Overheads(float(row["host_s"]), float(row["sequence_s"])),
        Waiting(prompt_s=float(row["prompt_s"]), burst_share=serving_constants()["burst_share"]),
        fitted=row["engine"] != GENERIC_ENGINE,
    )
