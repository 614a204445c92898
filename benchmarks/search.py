"""Searches of large spaces, and over all schedules of a stack beside the usual ones: CPU seconds, memory, plans.

Each search is a whole command in a process of its own. Run: ``python benchmarks/search.py [--write]``; minutes.
"""

import json
import os
import platform
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from typing import Any

from meshwright import __version__
from meshwright.present.plan_answers.layout_text import layout_words, pipeline_words
from meshwright.verbs.plan.plan_on_cluster import FAR_TOO_LARGE, SLOWER, TOO_LARGE, UNPLAYED

STACK = "meshwright"
QUESTIONS = (
    ("llama-3.1-70b", "h100-sxm-80gb x 256", 8192, 1024),
    ("gpt-3-175b", "a100-sxm-80gb x 1024", 2048, 1536),
)
LARGE = (
    ("gpt-3-175b", "a100-sxm-80gb x 1024", 2048, 1536),
    ("llama-3.1-405b", "h100-sxm-80gb x 16384", 8192, 2048),
    ("deepseek-v3", "h800-sxm-80gb x 2048", 4096, 15360),
)
RUNS = 5
"""How often each large question is asked: the machine's pace differs from minute to minute."""
LARGE_HEAD = (
    "| question | combinations | legal plans | can not fit, by a bound | slower, by a bound | priced | CPU s | GiB "
    "| best plan | step | MFU | within the error of a prediction |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|--:|"
)
HEAD = (
    "| question | schedules | legal plans | spared by a bound | too long to play | CPU s | best schedule | step "
    "| MFU |\n"
    "|---|---|--:|--:|--:|--:|---|--:|--:|"
)


def large_rows() -> Iterator[str]:
    """Large questions with the default stack."""
    for model, cluster, seq_len, batch in LARGE:
        runs = [run(model, cluster, seq_len, batch) for _ in range(RUNS)]
        data = runs[0][0]
        cpu_s = sorted(used.ru_utime + used.ru_stime for _, used in runs)
        best, rejected = data["plans"][0], data["rejected"]
        too_large = rejected.get(FAR_TOO_LARGE, 0) + rejected.get(TOO_LARGE, 0)
        report = best["predict"]
        cells = [
            asked(model, cluster, seq_len, batch),
            *(f"{data[f'candidates_{name}']:,}" for name in ("considered", "legal")),
            *(f"{count:,}" for count in (too_large, rejected.get(SLOWER, 0), data["candidates_evaluated"])),
            f"{median(cpu_s):.1f} ({cpu_s[0]:.1f} to {cpu_s[-1]:.1f})",
            f"{max(used.ru_maxrss for _, used in runs) / 2**20:.2f}",
            words(best["plan"]),
            f"{report['step_time_s']:.2f} s",
            f"{report['mfu']:.1%}",
            f"{data['candidates_tied']:,}",
        ]
        yield f"| {' | '.join(cells)} |"


def rows() -> Iterator[str]:
    """Each question with the usual schedules and with all of them."""
    for model, cluster, seq_len, batch in QUESTIONS:
        for schedules in (None, "auto"):
            more = ["--stack", STACK, *(["--schedule", schedules] if schedules else [])]
            data, used = run(model, cluster, seq_len, batch, *more)
            best, rejected = data["plans"][0], data["rejected"]
            pipeline, report = best["plan"]["pipeline"], best["predict"]
            cells = [
                asked(model, cluster, seq_len, batch),
                schedules or "usual",
                f"{data['candidates_legal']:,}",
                *(f"{rejected.get(reason, 0):,}" for reason in (SLOWER, UNPLAYED)),
                f"{used.ru_utime + used.ru_stime:.1f}",
                pipeline_words(pipeline),
                f"{report['step_time_s']:.2f} s",
                f"{report['mfu']:.1%}",
            ]
            yield f"| {' | '.join(cells)} |"


def run(model: str, cluster: str, seq_len: int, batch: int, *more: str) -> tuple[dict[str, Any], Any]:
    """What ``meshwright plan`` answers, and what its process used."""
    words = ["plan", model, "--on", cluster, "--seq-len", str(seq_len), "--global-batch", str(batch)]
    command = [sys.executable, "-c", "from meshwright.cli.main import main; main()", *words, *more, "--json"]
    with Popen(command, stdout=PIPE) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    return json.loads(text), used


def asked(model: str, cluster: str, seq_len: int, batch: int) -> str:
    """A question in words."""
    return f"{model} on {cluster}, {batch:,} × {seq_len:,}"


def words(plan: dict[str, Any]) -> str:
    """A plan in words."""
    pipeline, recompute = plan["pipeline"], plan["recompute"]
    chosen = recompute if isinstance(recompute, str) else ",".join(recompute)
    parts = [layout_words(plan["layout"]), f"mb{pipeline['micro_batch']}", pipeline_words(pipeline)]
    return ", ".join([*parts, plan["sharding"], f"recompute {chosen}"])


def page(large: str, text: str) -> str:
    """The page that is kept under ``benchmarks/``."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return f"""# Searches

Whole commands by version {__version__} on {date.today().isoformat()} ({machine}): CPU seconds of all threads, start and
report included (of the large spaces the median of {RUNS} commands, and from the least to the most), and the most memory
a process held. Steps are predicted. Made by `python benchmarks/search.py --write`.

## Large spaces

`plan` with its default stack, megatron-core. [How plans are searched](../docs/search.md) says what is in a space, and
why what a bound leaves out is not the best plan.

{large}

## All schedules

`plan --schedule auto` beside `plan`, stack `{STACK}`.

{text}
"""


if __name__ == "__main__":
    large, table = "\n".join([LARGE_HEAD, *large_rows()]), "\n".join([HEAD, *rows()])
    print(large, table, sep="\n\n")
    if "--write" in sys.argv:
        (Path(__file__).parent / "search.md").write_text(page(large, table), encoding="utf-8")
