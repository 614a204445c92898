"""How fast: closed forms per CPU second, CPU seconds of the verbs from a cold start, and of searches against before.

    python benchmarks/speed.py            prints the tables
    python benchmarks/speed.py --write    also writes benchmarks/speed.md

CPU seconds, best of three: on shared machines they are steadier than wall clock. The searches run in turn with those of
an earlier commit (``BEFORE``), which is checked out beside the repository for as long.
"""

import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np

from meshwright import __version__
from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.model.load import load_model
from meshwright.plans.setting import Setting
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

ROOT = Path(__file__).parents[1]
SILENT: dict[str, bool] = {"capture_output": True}
QUESTIONS = (
    ("llama-3.1-70b", "h100-sxm-80gb x 64", 8192, 512),
    ("mixtral-8x7b", "a100-sxm-80gb x 32", 4096, 256),
    ("gpt-3-175b", "a100-sxm-80gb x 1024", 2048, 1536),
    ("llama-3.1-405b", "h100-sxm-80gb x 16384", 8192, 2048),
    ("deepseek-v3", "h800-sxm-80gb x 2048", 4096, 15360),
)
MOST = 200_000
REPEATS = 3
BEFORE = "8c7b8e7"
"""The commit that searches are compared with."""
COMPARED = {"gpt-3-175b": 0.45, "deepseek-v3": 0.5, "llama-3.1-70b": 0.65, "llama-3.1-405b": 1.0}
"""Models whose questions are compared, with the ratio of CPU seconds that is aimed at."""


def closed_forms() -> list[str]:
    """Time and memory of every legal plan of a space (at most ``MOST`` of them, evenly picked)."""
    lines = ["| question | plans | CPU s | plans per CPU s |", "|---|--:|--:|--:|"]
    for model, cluster, seq_len, batch in QUESTIONS:
        workload = Workload(seq_len=seq_len, global_batch=batch)
        setting = Setting(load_model(model), load_cluster(cluster), workload, load_stack("megatron-core"))
        plans = enumerate_space(setting).plans
        plans = plans.take(np.arange(0, len(plans), max(1, len(plans) // MOST)))
        seconds = min(_cpu_s(lambda p=plans, s=setting: evaluate(p, s)) for _ in range(REPEATS))
        lines.append(
            f"| {model} on {cluster} | {len(plans):,} | {seconds:.2f} | {len(plans) / seconds:,.0f} |"
        )
    return lines


def verbs() -> list[str]:
    """CPU seconds of whole processes."""
    lines = ["| command | CPU s | target |", "|---|--:|--:|"]
    with tempfile.TemporaryDirectory() as folder:
        plan = str(Path(folder) / "plan.yaml")
        for model, cluster, seq_len, batch in QUESTIONS[1::-1]:
            sizes = ["--seq-len", str(seq_len), "--global-batch", str(batch)]
            command = ["plan", model, "--on", cluster, *sizes, "-o", plan]
            lines.append(f"| plan {model} on {cluster} | {_process_s(command):.2f} | 3 |")
        lines.append(f"| predict | {_process_s(['predict', plan]):.2f} | 0.8 |")
        lines.append(f"| --help | {_process_s(['--help']):.2f} | 0.4 |")
    return lines


def against_before() -> list[str]:
    """CPU seconds of whole searches with their draws, in turn with those of the commit ``BEFORE``."""
    lines = [f"| plan | {BEFORE}, CPU s | now, CPU s | ratio | target |", "|---|--:|--:|--:|--:|"]
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "worktree", "add", "--detach", before, BEFORE], cwd=ROOT, check=True, **SILENT)
        try:
            for model, cluster, seq_len, batch in QUESTIONS:
                if model in COMPARED:
                    sizes = ["--seq-len", str(seq_len), "--global-batch", str(batch), "--json"]
                    command = ["plan", model, "--on", cluster, *sizes]
                    pairs = [[_child_s(command, root) for root in (before, ROOT)] for _ in range(REPEATS)]
                    then, now = np.min(pairs, axis=0)
                    line = f"| {model} on {cluster} | {then:.2f} | {now:.2f} | {now / then:.2f} | {COMPARED[model]} |"
                    lines.append(line)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", before], cwd=ROOT, check=True, **SILENT)
    return lines


def _cpu_s(call) -> float:  # type: ignore[no-untyped-def]
    began = time.process_time()
    call()
    return time.process_time() - began


def _process_s(arguments: list[str]) -> float:
    return min(_child_s(arguments) for _ in range(REPEATS))


def _child_s(arguments: list[str], root: Path = ROOT) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "from meshwright.cli.main import main; main()", *arguments]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(root / "src")}, **SILENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def page(text: str) -> str:
    """The page that is kept under ``benchmarks/``."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return f"""# Speed

CPU seconds, best of {REPEATS}, measured by version {__version__} on {date.today().isoformat()} ({machine}). Made by
`python benchmarks/speed.py --write`.

{text}
"""


if __name__ == "__main__":
    report = "\n".join(
        [
            "Closed forms, time and memory together:",
            "",
            *closed_forms(),
            "",
            "Verbs:",
            "",
            *verbs(),
            "",
            "Searches, against an earlier commit:",
            "",
            *against_before(),
        ]
    )
    print(report)
    if "--write" in sys.argv:
        (Path(__file__).parent / "speed.md").write_text(page(report), encoding="utf-8")
