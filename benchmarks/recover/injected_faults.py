"""Inject faults into small runs, and count those that are named rightly.

A run has two or four ranks on CPUs under one of ``PLANS``, and one fault: kinds take turns, plan, rank and step are
drawn from a seed. A fault is named rightly if the run names its kind and rank (both ranks of a link; of two diverging
copies, both), and nothing else.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from kept_parts import kept
from training_runs import small_run

from meshwright.runtime.faults.fault import KINDS
from meshwright.runtime.faults.injection import Injection, injections
from meshwright.runtime.recovery.supervise import FaultStopError

FAULTS, SEED, LEAST_RIGHT = 60, 20261130, 0.95
STEPS, EARLIEST, LATEST, EVERY = 48, 6, 26, 16
"""Steps of a run, the first and last one that a fault is injected at, and the steps between comparisons."""
HANG_S = 5.0
PIPELINE = {"schedule": {"name": "1f1b"}, "micro_batch": 2}
PLANS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "2 replicas": {"ranks": 2, "layout": {"dp_replicate": 2}},
        "4 replicas": {"ranks": 4, "layout": {"dp_replicate": 4}},
        "zero1 x 2 replicas": {
            "ranks": 4,
            "layout": {"dp_replicate": 2, "dp_shard": 2},
            "sharding": "zero1",
        },
        "tp 2": {"ranks": 2, "layout": {"tp": 2}},
        "pp 2": {"ranks": 2, "layout": {"pp": 2}, "pipeline": PIPELINE},
        "pp 2 x 2 replicas": {"ranks": 4, "layout": {"pp": 2, "dp_replicate": 2}, "pipeline": PIPELINE},
    }
)
WITHOUT_COPIES = ("pp 2",)
"""Plans in which no two ranks hold the same parameter, so that nothing can diverge."""
WRITERS: Mapping[str, Sequence[int]] = MappingProxyType(
    {"2 replicas": (0,), "4 replicas": (0,), "zero1 x 2 replicas": (0, 1), "pp 2 x 2 replicas": (0, 2)}
)
"""Ranks that write files of checkpoints, where not all do."""


def drawn(number: int, seed: int = SEED) -> tuple[str, str]:
    """Return the plan and the injected fault of a run."""
    rng, kind = random.Random(f"{seed} {number}"), KINDS[number % len(KINDS)]
    plan = rng.choice([name for name in PLANS if kind != "diverge" or name not in WITHOUT_COPIES])
    step, ranks = rng.randint(EARLIEST, LATEST), range(PLANS[plan]["ranks"])
    if kind == "spike":
        return plan, f"spike:step={step}"
    if kind == "link":
        rank, peer = rng.sample(ranks, 2)
        return plan, f"link:rank={rank},peer={peer},step={step}"
    rank = rng.choice(WRITERS.get(plan, ranks) if kind == "full" else ranks)
    return plan, f"{kind}:rank={rank},step={step}"


def named_in_run(plan: str, inject: str, folder: Path) -> list[dict[str, Any]]:
    """Return the faults that a run names."""
    run = small_run(folder, **PLANS[plan])
    options = {"inject": (inject,), "hash_every": EVERY, "checkpoint_every": EVERY, "hang_s": HANG_S}
    try:
        return [fault.to_json() for fault in run.train("run", STEPS, "fp32", **options).outcome.faults]
    except FaultStopError as error:
        return list(error.details["faults"])


def is_right(injected: Injection, named: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether exactly the injected fault is named."""
    kinds, ranks = {fault["kind"] for fault in named}, {fault["rank"] for fault in named}
    if kinds != {injected.kind}:
        return False
    if injected.kind == "link":
        ends = [{fault["rank"], fault["peer"]} for fault in named]
        return ends == [{injected.rank, injected.peer}]
    if injected.kind == "diverge":
        return injected.rank in ranks and len(ranks) <= 2
    return ranks == {injected.rank}


def injected_row(number: int, seed: int = SEED) -> dict[str, Any]:
    """Inject a fault into a run and return the plan, the fault, and what is named."""
    plan, text = drawn(number, seed)
    with TemporaryDirectory() as folder:
        named = named_in_run(plan, text, Path(folder))
    (injected,) = injections([text])
    right = is_right(injected, named)
    return {
        "plan": plan,
        "injected": text,
        "kind": injected.kind,
        "right": right,
        "step_right": right and all(_step_is_right(injected, fault["step"]) for fault in named),
        "detected_s": max((fault["detected_s"] or 0.0 for fault in named), default=None),
        "named": [
            {name: fault[name] for name in ("kind", "rank", "peer", "step", "evidence")} for fault in named
        ],
    }


def _step_is_right(injected: Injection, step: int) -> bool:
    """Return whether a step is that of the fault; a full disk is met by the next checkpoint."""
    due = -(-(injected.step + 1) // EVERY) * EVERY - 1
    return step == (due if injected.kind == "full" else injected.step)


def faults_named() -> tuple[str, bool]:
    """Return the section, and whether enough faults are named rightly."""
    rows = [
        kept(f"injected fault {number}", lambda number=number: injected_row(number))
        for number in range(FAULTS)
    ]
    right = sum(row["right"] for row in rows)
    lines = [_kind_row(kind, [row for row in rows if row["kind"] == kind]) for kind in KINDS]
    text = f"""{right} of {FAULTS} injected faults are named with the right kind and rank, or both ranks of the link
(limit {LEAST_RIGHT:.0%}). Runs of {STEPS} steps of a tiny model on two or four ranks of a CPU, seed {SEED}; comparisons
and checkpoints every {EVERY} steps; times from the injection (`benchmarks/recover/injected_faults.py`).

| kind | injected | named rightly | with the right step | median time to name | longest |
|---|--:|--:|--:|--:|--:|
{chr(10).join(lines)}"""
    wrong = [
        f"- {row['injected']} under {row['plan']}: {_names(row['named'])}" for row in rows if not row["right"]
    ]
    return "\n\n".join(
        [text, *(["Others:\n\n" + "\n".join(wrong)] if wrong else [])]
    ), right >= LEAST_RIGHT * FAULTS


def _kind_row(kind: str, rows: Sequence[Mapping[str, Any]]) -> str:
    times = sorted(row["detected_s"] for row in rows if row["right"] and row["detected_s"] is not None)
    seconds = f"{times[len(times) // 2]:.2f} s | {times[-1]:.2f} s" if times else "- | -"
    counts = " | ".join(str(sum(row[name] for row in rows)) for name in ("right", "step_right"))
    return f"| {kind} | {len(rows)} | {counts} | {seconds} |"


def _names(named: Sequence[Mapping[str, Any]]) -> str:
    texts = [f"{of['kind']} of rank {of['rank']} at step {of['step']} ({of['evidence']})" for of in named]
    return "; ".join(texts) or "nothing"
