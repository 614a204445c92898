"""Hold one step of each target, taken on a process group that is none, against the Program of the same plan.

    python benchmarks/dry.py TARGET=PYTHON [TARGET=PYTHON ...] [--write]

PYTHON is the interpreter of an environment that has the target (``scripts/parsers.sh`` makes them). Models are whole;
what is counted is described in ``src/meshwright/frameworks/target_checks``.
"""

import sys
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from meshwright import __version__
from meshwright.frameworks.target_checks.dry_run import DryRun, dry_run
from meshwright.frameworks.target_checks.target_python import TARGET_CHECKS
from meshwright.model.load import load_config
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve

HERE = Path(__file__).parent
Row = tuple[str, dict[str, int], str, int, str, int]
PLANS: Mapping[str, tuple[Row, ...]] = {
    "torchtitan": (
        ("llama-3.1-8b", {"dp_shard": 4, "tp": 2}, "zero3", 1, "none", 64),
        ("llama-3.1-8b", {"dp_shard": 4, "dp_replicate": 2, "tp": 2}, "zero3", 1, "full", 64),
        ("llama-3.1-8b", {"dp_shard": 2, "cp": 2, "tp": 2}, "zero3", 1, "none", 16),
        ("llama-3.1-8b", {"pp": 4, "dp_shard": 2, "tp": 2}, "zero3", 1, "none", 16),
        ("llama-3.1-8b", {"pp": 2, "dp_shard": 8}, "zero3", 2, "full", 64),
        ("llama-3.1-8b", {"dp_replicate": 4, "tp": 2}, "none", 1, "selective", 16),
        ("llama-3.1-70b", {"pp": 4, "dp_shard": 8, "tp": 8}, "zero2", 1, "full", 256),
        ("qwen3-32b", {"dp_shard": 16, "tp": 4}, "zero2", 1, "none", 64),
        ("qwen3-30b-a3b", {"dp_shard": 8}, "zero3", 1, "none", 64),
        ("gpt-oss-20b", {"dp_shard": 8}, "zero3", 1, "none", 64),
        ("deepseek-v3", {"dp_shard": 64}, "zero3", 1, "full", 64),
    ),
    "deepspeed": (
        ("llama-3.1-8b", {"dp_replicate": 8}, "none", 1, "none", 64),
        ("llama-3.1-8b", {"dp_shard": 8}, "zero1", 1, "none", 64),
        ("llama-3.2-1b", {"dp_shard": 16}, "zero1", 1, "full", 64),
        ("mistral-7b-v0.3", {"dp_shard": 16}, "zero2", 1, "full", 64),
        ("qwen3-30b-a3b", {"dp_shard": 8}, "zero2", 1, "none", 64),
        ("llama-3.1-8b", {"dp_shard": 8}, "zero3", 1, "none", 64),
        ("qwen3-8b", {"dp_shard": 64}, "zero3", 1, "full", 256),
    ),
    "accelerate": (
        ("llama-3.1-8b", {"dp_shard": 8}, "zero3", 1, "none", 64),
        ("llama-3.1-8b", {"dp_shard": 8, "dp_replicate": 4}, "zero3", 1, "full", 256),
        ("mistral-7b-v0.3", {"dp_shard": 16}, "zero2", 1, "full", 64),
        ("llama-3.2-1b", {"dp_shard": 8}, "zero3", 1, "none", 64),
        ("qwen3-30b-a3b", {"dp_shard": 8}, "zero3", 1, "none", 64),
        ("llama-3.1-70b", {"dp_shard": 64}, "zero3", 1, "full", 256),
    ),
}
"""Model, degrees, sharding, virtual stages, recomputation and global batch of every plan."""


def plan_of(target: str, row: Row) -> ShortPlan:
    """The plan of a row."""
    model, layout, sharding, chunks, recompute, global_batch = row
    devices = 1
    for degree in layout.values():
        devices *= degree
    return ShortPlan.model_validate(
        {
            "plan": 1,
            "model": model,
            "cluster": f"h100-sxm-80gb x {devices}",
            "stack": TARGET_CHECKS[target].stack,
            "workload": {"seq_len": 4096, "global_batch": global_batch},
            "layout": layout,
            "sharding": sharding,
            "pipeline": {
                "schedule": "interleaved-1f1b" if chunks > 1 else "1f1b",
                "virtual_stages": chunks,
                "micro_batch": 1,
            },
            "recompute": recompute,
        }
    )


def ran(target: str, python: str) -> Iterator[tuple[Row, DryRun]]:
    """Every plan of a target, and what its step showed."""
    for row in PLANS[target]:
        resolved = resolve(plan_of(target, row))
        yield row, dry_run(target, resolved.long, resolved.setting, load_config(row[0]), python)


def spoken(row: Row, found: DryRun) -> str:
    """A row of the table: the plan, what both sides hold and send, and the verdict."""
    model, layout, sharding, chunks, recompute, _ = row
    degrees = " ".join(f"{axis} {degree}" for axis, degree in layout.items())
    words = f"{degrees} {sharding}{f' x{chunks}' if chunks > 1 else ''} {recompute}"
    classes = found.classes
    elements = (
        "equal" if all(c["plan"] == c["target"] for one in classes for c in one.counts) else "explained"
    )
    groups = sum(len(one.groups) for one in classes)
    sides = " / ".join(f"{_total(found, f'{side}_count'):,}" for side in ("plan", "target"))
    volumes = " / ".join(f"{_total(found, f'{side}_bytes') / 1e9:.1f}" for side in ("plan", "target"))
    names = sorted({explained.name for one in classes for explained in one.explained})
    verdict = f"{found.disagreements} disagreements" if found.disagreements else "agrees"
    seconds = sum(one.seconds for one in classes)
    return (
        f"| {model} | {words} | {len(classes)} | {elements} | {groups} | {sides} | {volumes} | {verdict} "
        f"| {'; '.join(names)} | {seconds:.0f} |"
    )


def _total(found: DryRun, key: str) -> int:
    rows: list[dict[str, Any]] = [row for one in found.classes for row in one.collectives]
    return sum(row[key] for row in rows)


def page(environments: Mapping[str, str]) -> str:
    """The tables of all targets, and the reason of every difference that was met."""
    parts, reasons = [], {}
    for target, python in environments.items():
        lines = []
        for row, found in ran(target, python):
            lines.append(spoken(row, found))
            print(lines[-1], flush=True)
            for one in found.classes:
                reasons |= {(target, e.name, e.why): None for e in one.explained}
                lines += [
                    f"| | **{d.name}**: plan {d.plan}; target {d.target} {'| ' * 9}"
                    for d in one.disagreements
                ]
        parts.append(TABLE.format(target=target, lines="\n".join(lines)))
    why = "\n".join(f"* {target}, {name}: {reason}." for target, name, reason in sorted(reasons))
    return PAGE.format(
        version=__version__, today=date.today().isoformat(), parts="\n".join(parts), reasons=why
    )


TABLE = """## {target}

| model | plan | classes | elements | groups | collectives, plan / target | GB, likewise | verdict | explained | s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{lines}
"""
PAGE = """# One step of each target, held against the Program

Each target (torchtitan 0.3.0, DeepSpeed 0.19.8, Accelerate 1.15.0 with transformers 5.23) built its own wrapped model
from the exported files and took one optimizer step as one rank of each class of equivalent ranks, on torch's fake
process group, with whole models, no GPU and no weights; by version {version} on {today}. Made by
`python benchmarks/dry.py TARGET=PYTHON … --write` with the environments of `scripts/parsers.sh`.

*Elements* are those of parameters and of one optimizer state of a rank. *Collectives* and *GB* count one rank of every
class: logical bytes of the step's micro-batches (2 without a pipeline). What a target does in its own way is taken
from both sides by the rows of `src/meshwright/frameworks/target_checks/known_differences.py`, in equal bytes or
within the bound that the row gives; *agrees* means that nothing is left, in number, size, group or order.

{parts}
## Explained differences

{reasons}
"""


def main(arguments: list[str]) -> None:
    """Print the page, and write it where asked."""
    environments = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    text = page(environments)
    print(text)
    if "--write" in arguments:
        (HERE / "dry.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
