"""Hold exports against their targets' own parsers: random legal plans, accepted or not, and what was read back.

    python benchmarks/accepted.py TARGET=PYTHON [TARGET=PYTHON ...] [--write]

PYTHON is the interpreter of an environment that has the target (``scripts/parsers.sh`` makes them). Every plan that the
exporter does not refuse by name is asked about, until ``ASKED`` were; the values that the parser read back are held
against the plan.
"""

import random
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

from meshwright import __version__
from meshwright.errors import InputError, PlanError, UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.frameworks.target_checks.parser_check import ParserVerdict, check_with_parser
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved, resolve

ASKED = 16
MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b", "deepseek-v3")
HERE = Path(__file__).parent
READ_BACK: Mapping[str, Mapping[str, str]] = {
    "megatron": {
        "tensor_model_parallel_size": "tp",
        "pipeline_model_parallel_size": "pp",
        "context_parallel_size": "cp",
        "micro_batch_size": "micro_batch",
        "global_batch_size": "global_batch",
        "seq_length": "seq_len",
        "ranks": "ranks",
    },
    "torchtitan": {"tp": "tp", "pp": "pp", "cp": "cp", "ranks": "ranks", "global_batch_size": "global_batch"},
    "deepspeed": {"ranks": "ranks", "train_batch_size": "global_batch", "tp": "tp", "ep": "ep"},
    "accelerate": {"num_processes": "ranks", "tp": "tp", "cp": "cp"},
}
"""The parser's names of values of the plan."""


def plans(target: str) -> Iterator[Resolved]:
    """Random legal plans, the same every time."""
    draw = random.Random(f"plans for {target}")
    while True:
        pp, tp, cp = (draw.choice((1, 1, 2, 4)) for _ in range(3))
        shard, replicate = draw.choice((1, 2, 4, 8)), draw.choice((1, 1, 2))
        chunks = draw.choice((1, 2)) if pp > 1 else 1
        micro_batch = draw.choice((1, 2))
        devices = pp * tp * cp * shard * replicate
        data = {
            "plan": 1,
            "model": draw.choice(MODELS),
            "cluster": f"h100-sxm-80gb x {devices}",
            "stack": {"megatron": "megatron-core"}.get(target, target),
            "workload": {
                "seq_len": 4096,
                "global_batch": micro_batch * shard * replicate * pp * draw.choice((1, 2)),
            },
            "layout": {
                "pp": pp,
                "tp": tp,
                "cp": cp,
                "dp_shard": shard,
                "dp_replicate": replicate,
                "ep": draw.choice((1, 1, 2, 4)),
            },
            "sharding": draw.choice(("none", "zero1", "zero2", "zero3")),
            "pipeline": {
                "schedule": "interleaved-1f1b" if chunks > 1 else "1f1b",
                "virtual_stages": chunks,
                "micro_batch": micro_batch,
            },
            "recompute": draw.choice(("none", "selective", "full")),
        }
        try:
            yield resolve(ShortPlan.model_validate(data))
        except (PlanError, InputError):
            continue


def asked(target: str, python: str) -> Iterator[tuple[Resolved, ParserVerdict, list[str]]]:
    """Plans that the exporter writes, the target's verdict, and values that are not the plan's."""
    seen: set[str] = set()
    for resolved in plans(target):
        setting = resolved.setting
        try:
            export = TARGETS[target](resolved.long, setting.model, setting.cluster, setting.stack)
        except UnsupportedError:
            continue
        if str(resolved.short) in seen:
            continue
        seen.add(str(resolved.short))
        verdict = check_with_parser(target, export.files, python)
        yield resolved, verdict, differing(target, resolved, verdict)
        if len(seen) == ASKED:
            return


def differing(target: str, resolved: Resolved, verdict: ParserVerdict) -> list[str]:
    """Values that the parser read in another way than the plan means them."""
    short = resolved.short
    assert short is not None
    layout = short.layout
    meant = {axis: getattr(layout, axis) for axis in ("tp", "pp", "cp", "ep")}
    meant |= {"micro_batch": short.pipeline.micro_batch, "global_batch": short.workload.global_batch}
    meant |= {"seq_len": short.workload.seq_len, "ranks": resolved.setting.cluster.devices}
    return [
        f"{name} = {verdict.values[name]}, not {meant[ours]}"
        for name, ours in READ_BACK[target].items()
        if verdict.accepted and name in verdict.values and verdict.values[name] != meant[ours]
    ]


def spoken(resolved: Resolved) -> str:
    """The plan in a line."""
    short = resolved.short
    assert short is not None
    layout = short.layout
    axes = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")
    degrees = " ".join(f"{axis} {getattr(layout, axis)}" for axis in axes if getattr(layout, axis) > 1)
    return f"{short.model} | {degrees or 'one device'} {short.sharding} {short.recompute}"


def page(environments: Mapping[str, str]) -> str:
    """The table of all targets."""
    lines, totals = [], []
    for target, python in environments.items():
        found = list(asked(target, python))
        good = sum(verdict.accepted and not wrong for _, verdict, wrong in found)
        totals.append(f"{target}: {good} of {len(found)} accepted with the values that were meant.")
        for resolved, verdict, wrong in found:
            said = "accepted" if verdict.accepted else f"refused: {verdict.message[:160]}"
            lines.append(f"| {target} | {spoken(resolved)} | {'; '.join([said, *wrong])} |")
        print(totals[-1], flush=True)
    return f"""# Exports held against the targets' own parsers

Random legal plans that the exporter did not refuse by name, handed to the target's own parser (megatron-core 0.19.2,
torchtitan 0.3.0, DeepSpeed 0.19.8, Accelerate 1.15.0); by version {__version__} on {date.today().isoformat()}. Made by
`python benchmarks/accepted.py TARGET=PYTHON … --write` with the environments of `scripts/parsers.sh`.

{chr(10).join(totals)}

| target | model | plan | the target said |
| --- | --- | --- | --- |
{chr(10).join(lines)}
"""


def main(arguments: list[str]) -> None:
    """Print the page, and write it where asked."""
    environments = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    text = page(environments)
    print(text)
    if "--write" in arguments:
        (HERE / "accepted.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
