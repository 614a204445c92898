"""Searches over all schedules of a stack beside the usual ones: CPU seconds, plans, what the best one gains.

Run: ``python benchmarks/search.py [--write]``; minutes.
"""

import os
import platform
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from meshwright import __version__
from meshwright.plan.short import ShortPlan, WorkloadSpec
from meshwright.verbs.planning import SLOWER, UNPLAYED, PlanAnswer, Question, answer

STACK = "meshwright"
QUESTIONS = (
    ("llama-3.1-70b", "h100-sxm-80gb x 256", 8192, 1024),
    ("gpt-3-175b", "a100-sxm-80gb x 1024", 2048, 1536),
)
HEAD = (
    "| question | schedules | legal plans | spared by a bound | too long to play | CPU s | best schedule | step "
    "| MFU |\n"
    "|---|---|--:|--:|--:|--:|---|--:|--:|"
)


def rows() -> Iterator[str]:
    """Each question with the usual schedules and with all of them."""
    for model, cluster, seq_len, batch in QUESTIONS:
        workload = WorkloadSpec(seq_len=seq_len, global_batch=batch)
        header = ShortPlan(plan=1, model=model, cluster=cluster, workload=workload, stack=STACK)
        for schedules in (None, "auto"):
            began = time.process_time()
            found = answer(Question(header, schedules=schedules))
            seconds = time.process_time() - began
            yield _row(f"{model} on {cluster}, {batch} × {seq_len:,}", schedules or "usual", found, seconds)


def _row(question: str, schedules: str, found: PlanAnswer, seconds: float) -> str:
    best = found.proposals[0]
    pipeline, report = best.plan.pipeline, best.report
    chunks = f" ×{pipeline.virtual_stages}" if pipeline.virtual_stages > 1 else ""
    spared, unplayed = (found.rejected.get(reason, 0) for reason in (SLOWER, UNPLAYED))
    return (
        f"| {question} | {schedules} | {found.legal:,} | {spared:,} | {unplayed:,} | {seconds:.1f} | "
        f"{pipeline.choice}{chunks} | {report.step_time_s:.2f} s | {report.mfu or 0:.1%} |"
    )


def page(text: str) -> str:
    """The page that is kept under ``benchmarks/``."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return f"""# Searches over schedules

`plan --schedule auto` beside `plan`, stack `{STACK}`; CPU seconds of one search each, by version {__version__} on
{date.today().isoformat()} ({machine}). Steps are predicted. Made by `python benchmarks/search.py --write`.

{text}
"""


if __name__ == "__main__":
    table = "\n".join([HEAD, *rows()])
    print(table)
    if "--write" in sys.argv:
        (Path(__file__).parent / "search.md").write_text(page(table), encoding="utf-8")
