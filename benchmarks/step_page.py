"""The result of a step, and the summary page of a target."""

import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

PASSED, KEPT, FAILED, NOT_RUN = "passed", "passed before", "failed", "not run"


@dataclass(frozen=True)
class Result:
    """The outcome of a step. Seconds and date are those of the call that ran it."""

    step: str
    result: str
    seconds: float = 0.0
    date: str = ""
    hash: str = ""
    remark: str = ""


def summary(results: Sequence[Result], seconds: float) -> str:
    """Return counts and times of a call in a sentence."""
    counts = Counter(result.result for result in results)
    parts = [f"{counts[key]} {key}" for key in (PASSED, KEPT, FAILED, NOT_RUN) if counts[key]]
    total = sum(result.seconds for result in results)
    return f"{', '.join(parts)} of {len(results)} steps; the call took {seconds:,.0f} s, the steps {total:,.0f} s."


def summary_page(target: str, results: Sequence[Result], seconds: float) -> str:
    """Return the page of a target: step by step the result, the seconds, the date and the hash of the inputs."""
    machine = f"On {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    rows = "\n".join(_row(result) for result in results)
    return f"""# Steps of `make {target}`

{machine}: {summary(results, seconds)}
*Passed before*: an earlier call ran the step with the same inputs; seconds and date are that call's.
*Hash*: of the command and of all files that the step depends on.

| step | result | seconds | date | hash |
|---|---|--:|---|---|
{rows}
"""


def _row(result: Result) -> str:
    said = (
        f"{result.result}: {result.remark}" if result.result == NOT_RUN and result.remark else result.result
    )
    seconds = f"{result.seconds:,.1f}" if result.date else ""
    return f"| {result.step} | {said} | {seconds} | {result.date} | {result.hash} |"
