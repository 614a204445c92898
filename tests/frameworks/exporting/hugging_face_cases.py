"""Random plans in the reach of DeepSpeed and Accelerate, and those of them that a target writes."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest
from export_cases import Case, case, model

from meshwright.errors import UnsupportedError
from meshwright.frameworks.exporting.export_result import Export, Exporter

SAYS = '#!/usr/bin/env bash\nprintf "%s\\n" "$@"\n'
SLURM = {
    "scontrol": "#!/bin/sh\necho node0\necho node1\n",
    "srun": '#!/usr/bin/env bash\nshift\nexec "$@"\n',
}
MODELS = ("llama-3.1-8b", "qwen3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "gemma-2-9b")
STACKS = ("deepspeed", "generic", "torchtitan")
ORDER = ("dp_shard", "tp", "cp", "dp_replicate", "pp")
REFUSED_BY_BOTH: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("layout.pp", "llama-3.1-8b", {"layout": {"pp": 2, "dp_shard": 8}}),
    ("layout.sequence_parallel", "llama-3.1-8b", {"layout": {"tp": 2, "dp_shard": 8}}),
    ("layout.rank_order", "llama-3.1-8b", {"layout": {"tp": 2, "dp_shard": 8, "rank_order": ORDER}}),
    ("layout.cp", "gpt-oss-20b", {"layout": {"cp": 2, "dp_shard": 8}}),
    ("recompute", "llama-3.1-8b", {"recompute": "selective"}),
    ("recompute", "llama-3.1-8b", {"recompute": ("mlp",)}),
    (
        "layout.sequence_parallel",
        "mixtral-8x7b",
        {"layout": {"tp": 2, "dp_shard": 8, "sequence_parallel": False}},
    ),
    ("workload.precision", "llama-3.1-8b", {"workload": {"precision": "mxfp8"}}),
    ("workload.precision", "llama-3.1-8b", {"workload": {"precision": "fp32"}}),
)
"""Field of the problem, model, and what is said of a plan with zero3."""


def random_case(random: Random) -> Case:
    """A plan without pipeline; most are legal, many of them sayable."""
    name, tp = random.choice(MODELS), random.choice((1, 1, 2, 4))
    layout = {"tp": tp, "cp": random.choice((1, 1, 1, 2)), "dp_replicate": random.choice((1, 1, 2))}
    ranks = random.choice((4, 8, 16, 32))
    layout["dp_shard"] = max(1, ranks // (tp * layout["cp"] * layout["dp_replicate"]))
    size = tp * layout["cp"] * layout["dp_replicate"] * layout["dp_shard"]
    if model(name).architecture.moe:
        layout["ep"] = random.choice([d for d in (1, 2, 4) if size % d == 0])
        layout["etp"] = random.choice((1, tp)) if layout["ep"] == 1 else 1
    micro_batch = random.choice((1, 2, 4))
    steps, dp = random.choice((1, 2, 3, 8)), layout["dp_replicate"] * layout["dp_shard"]
    return case(
        name,
        f"h100-sxm-80gb x {size}",
        random.choice(STACKS),
        workload={
            "seq_len": random.choice((2048, 4096)),
            "global_batch": micro_batch * steps * dp,
            "precision": random.choice(("bf16", "bf16", "fp16")),
            "optimizer": random.choice(("adamw", "sgd")),
        },
        layout={**layout, "sequence_parallel": False},
        sharding=random.choice(("none", "zero1", "zero2", "zero3", "zero3")),
        gather=random.choice((None, "per-micro-batch")),
        pipeline={"micro_batch": micro_batch},
        recompute=random.choice(("none", "full")),
    )


def written(exporter: Exporter, count: int, seed: int) -> Iterator[tuple[Case, Export]]:
    """The first ``count`` random legal plans that a target can say, with what it writes."""
    random, found = Random(seed), 0
    while found < count:
        this = random_case(random)
        if this.errors:
            continue
        try:
            export = exporter(this.plan, this.model, this.cluster, this.stack)
        except UnsupportedError:
            continue
        found += 1
        yield this, export


def refused_fields(exporter: Exporter, this: Case) -> set[str]:
    """Fields of the problems that an export raises; an export that raises nothing fails."""
    with pytest.raises(UnsupportedError) as caught:
        exporter(this.plan, this.model, this.cluster, this.stack)
    assert all(problem.rule and problem.suggestion for problem in caught.value.problems)
    return {problem.field for problem in caught.value.problems}


def run_script(
    files: Mapping[str, str],
    script: str,
    program: str,
    folder: Path,
    words: tuple[str, ...] = (),
    **site: str,
) -> subprocess.CompletedProcess[str]:
    """Run a written script with a program on PATH that only prints what it was given, a line a word."""
    programs = folder / "scripts"
    programs.mkdir()
    for name, text in {program: SAYS, **SLURM}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for path, text in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    known = {"PATH": f"{programs}:{os.environ['PATH']}", **site}
    command = ["bash", str(folder / script), *words]
    return subprocess.run(command, env=known, capture_output=True, text=True, check=False, cwd=folder)
