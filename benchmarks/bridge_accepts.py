"""Hold exports for Megatron-Bridge against its own configuration classes: random legal plans, accepted or not.

    python benchmarks/bridge_accepts.py PYTHON [--write]

PYTHON is the interpreter of an environment with Megatron-Bridge 0.6.2 (``scripts/parsers.sh bridge`` makes one).
Bridge can not be imported as it is without CUDA; ``bridge_reads.py``, which runs there, says what stands in for what.
Every plan that the exporter does not refuse by name is asked about, until ``ASKED`` were; the values that Bridge's
configuration holds in the end are held against the plan. Some of the exports are asked about a second time with one
number changed, so that it shows whether a wrong one would be noticed.
"""

import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from meshwright import __version__
from meshwright.errors import InputError, UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.megatron.importing.pipeline_layout import read_layout
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.layer_assignment import stage_layers
from meshwright.plans.resolve import Resolved, resolve
from meshwright.stack.load import load_stack

ASKED, CHANGED = 300, 30
HERE = Path(__file__).parent
SAYS = '#!/usr/bin/env bash\nprintf "%s\\0" "${CUDA_DEVICE_MAX_CONNECTIONS:-}" "$@"\n'
Case = tuple[Resolved, dict[str, object]]
Answer = tuple[Resolved, dict[str, Any], list[str]]
"""A plan, the verdict, and what is not as it was meant."""


def plans() -> Iterator[Resolved]:
    """Random legal plans of the models that Bridge has recipes for, the same every time."""
    draw = random.Random("plans for bridge")
    models = [row.model for row in load_stack("megatron-bridge").models or ()]
    while True:
        pp, cp = draw.choice((1, 2, 4)), draw.choice((1, 1, 2, 4))
        tp, shard, replicate = draw.choice((1, 2, 4, 8)), draw.choice((1, 2, 4, 8)), draw.choice((1, 1, 2))
        chunks, micro_batch = draw.choice((1, 2)) if pp > 1 else 1, draw.choice((1, 2))
        data = {
            "plan": 1,
            "model": draw.choice(models),
            "cluster": f"{draw.choice(('h100-sxm-80gb', 'b200'))} x {pp * tp * cp * shard * replicate}",
            "stack": draw.choice(("megatron-core", "megatron-bridge")),
            "workload": {
                "seq_len": draw.choice((2048, 4096)),
                "global_batch": micro_batch * shard * replicate * pp * draw.choice((1, 2)),
                "precision": draw.choice(("bf16", "bf16", "bf16", "fp8", "mxfp8", "nvfp4", "fp16")),
                "optimizer": draw.choice(("adamw", "adamw", "sgd")),
            },
            "layout": {
                "pp": pp,
                "tp": tp,
                "cp": cp,
                "dp_shard": shard,
                "dp_replicate": replicate,
                "ep": draw.choice((1, 1, 2, 4)),
                "etp": draw.choice((1, 1, tp)),
            },
            "sharding": draw.choice(("none", "zero1", "zero2", "zero3")),
            "pipeline": {
                "schedule": "interleaved-1f1b" if chunks > 1 else "1f1b",
                "virtual_stages": chunks,
                "micro_batch": micro_batch,
            },
            "recompute": draw.choice(("none", "selective", "full", ("layernorm", "mlp"), ("moe_act",))),
        }
        if data["sharding"] == "none":
            data["layout"] |= {"dp_shard": 1, "dp_replicate": shard * replicate}
        try:
            yield resolve(ShortPlan.model_validate(data))
        except InputError:
            continue


def written(folder: Path, refused: Counter[str]) -> Iterator[Case]:
    """Exported plans, each in a folder of its own, and what Bridge's Python is told of them."""
    seen: set[str] = set()
    for resolved in plans():
        setting = resolved.setting
        if str(resolved.short) in seen:
            continue
        seen.add(str(resolved.short))
        try:
            export = TARGETS["bridge"](resolved.long, setting.model, setting.cluster, setting.stack)
        except UnsupportedError as error:
            refused.update({problem.field for problem in error.problems})
            continue
        place = folder / f"{len(seen)}"
        for name, text in export.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text, encoding="utf-8")
        yield resolved, _told(place / "bridge", resolved)


def _told(folder: Path, resolved: Resolved) -> dict[str, object]:
    """The words that ``launch.sh`` hands to torchrun, from ``run.py`` on."""
    torchrun = folder / "torchrun"
    torchrun.write_text(SAYS, encoding="utf-8")
    torchrun.chmod(0o755)
    known = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", str(folder / "launch.sh")], env=known, capture_output=True, text=True, check=True
    )
    connections, *words = done.stdout.split("\0")[:-1]
    begin = next(at for at, word in enumerate(words) if word.endswith("run.py"))
    model = files("meshwright.model").joinpath("zoo", f"{resolved.long.model}.json")
    return {
        "folder": str(folder),
        "words": words[begin + 1 :],
        "ranks": resolved.setting.cluster.devices,
        "model": str(model),
        "variables": {"CUDA_DEVICE_MAX_CONNECTIONS": connections} if connections else {},
    }


def asked(python: str, refused: Counter[str]) -> Iterator[Answer]:
    """Plans and the verdicts of Bridge in the interpreter ``python``, at the end those of changed exports."""
    with tempfile.TemporaryDirectory() as name:
        found = list(islice(written(Path(name), refused), ASKED))
        found += [_changed(case) for case in found[:CHANGED]]
        cases = Path(name) / "cases.json"
        cases.write_text(json.dumps([told for _, told in found]), encoding="utf-8")
        command = [python, str(HERE / "bridge_reads.py"), str(cases)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"accepted"')]
    if len(lines) != len(found):
        raise SystemExit(f"{len(lines)} verdicts of {len(found)} cases; it said last: {done.stderr[-2000:]}")
    for (resolved, _), said in zip(found, lines, strict=True):
        yield resolved, said, differing(resolved, said["values"]) if said["accepted"] else [said["message"]]


def _changed(case: Case) -> Case:
    """The same case with the double of its tensor parallelism in the file."""
    resolved, told = case
    folder = Path(str(told["folder"])).parent / "changed"
    folder.mkdir()
    text = (folder.parent / "bridge" / "overrides.yaml").read_text(encoding="utf-8")
    double = re.sub(
        r"(tensor_model_parallel_size: )([0-9]+)", lambda hit: f"{hit[1]}{2 * int(hit[2])}", text, count=1
    )
    (folder / "overrides.yaml").write_text(double, encoding="utf-8")
    return resolved, told | {"folder": str(folder)}


def differing(resolved: Resolved, values: Mapping[str, object]) -> list[str]:
    """Values that Bridge holds in another way than the plan means them."""
    expected = meant(resolved)
    wrong = [
        f"{name} = {values[name]}, not {value}" for name, value in expected.items() if values[name] != value
    ]
    return wrong + _differing_stages(resolved, values)


def meant(resolved: Resolved) -> dict[str, object]:
    """What Bridge's configuration should hold, by its own names."""
    short, arch = resolved.short, resolved.setting.model.architecture
    assert short is not None
    layout, work = short.layout, short.workload
    (mesh,) = resolved.long.layouts.values()
    cut = layout.dp_shard * layout.cp > 1 or (mesh.experts is not None and mesh.experts.edp_shard > 1)
    sharded = short.sharding != "none" and cut
    fields: dict[str, object] = {
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "context_parallel_size": layout.cp,
        "data_parallel_size": layout.dp_shard * layout.dp_replicate,
        "sequence_parallel": layout.tp > 1,
        "micro_batch_size": short.pipeline.micro_batch,
        "global_batch_size": work.global_batch,
        "seq_length": work.seq_len,
        "num_layers": arch.layers,
        "hidden_size": arch.hidden,
        "num_attention_heads": arch.heads,
        "fp16": work.precision == "fp16",
        "bf16": work.precision != "fp16",
    }
    if arch.moe:
        fields |= {"expert_model_parallel_size": layout.ep, "expert_tensor_parallel_size": layout.etp}
    if short.sharding in ("none", "zero1"):
        fields |= {"use_distributed_optimizer": sharded, "use_megatron_fsdp": False}
    elif sharded:
        fields |= {"use_megatron_fsdp": True}
    return fields


def _differing_stages(resolved: Resolved, values: Mapping[str, object]) -> list[str]:
    """Layers of every stage, from the layout as text or from equal division."""
    layers = resolved.setting.model.architecture.layers
    ours = [stage.count for stage in stage_layers(resolved.long.pipeline, layers)]
    text, chunks = (
        values["pipeline_model_parallel_layout"],
        values["virtual_pipeline_model_parallel_size"] or 1,
    )
    stages = len(ours)
    theirs = [layers // stages] * stages
    if text is not None:
        theirs = [stage.layers for stage in read_layout(GivenOption("layout", (str(text),), 0), [])]
    wrong = [] if theirs == ours else [f"stages of {theirs} layers, not {ours}"]
    virtual = stages // len({*resolved.long.pipeline.placement})
    return wrong if chunks == virtual else [*wrong, f"{chunks} virtual stages, not {virtual}"]


def page(python: str) -> str:
    """The figures, and every plan that was not taken as it was meant."""
    refused: Counter[str] = Counter()
    answers = list(asked(python, refused))
    found, changed = answers[:-CHANGED], answers[-CHANGED:]
    good = sum(not wrong for _, _, wrong in found)
    noticed = sum(bool(wrong) for _, _, wrong in changed)
    models = Counter(resolved.long.model for resolved, _, _ in found)
    lines = [f"| {resolved.long.model} | {'; '.join(wrong)} |" for resolved, _, wrong in found if wrong]
    table = (
        ["| model | what Bridge says |", "| --- | --- |", *lines] if lines else ["None was taken otherwise."]
    )
    fields = ", ".join(f"`{field}` {count}" for field, count in refused.most_common())
    spread = ", ".join(f"{name} {count}" for name, count in sorted(models.items()))
    return f"""# Exports held against Megatron-Bridge's own configuration

{good} of {len(found)} random legal plans were accepted by Megatron-Bridge 0.6.2 with the values that were meant: its
own recipe was called, its own code merged the exported overrides and the words of `launch.sh`, and its own checks, with
which training begins, finalised and validated the result. Held against the plan were its degrees (tp, pp, cp, ep, etp,
data parallelism), virtual stages, layers of every stage, batch, micro-batch, sequence length, precision, sharding, and
the model's layers, width and heads. Of {CHANGED} of these exports with the double of tp in the file, {noticed} were
noticed. By version {__version__} on {date.today().isoformat()}; made by
`python benchmarks/bridge_accepts.py PYTHON --write` with the environment of `scripts/parsers.sh bridge`.

**What this does not show.** Bridge can not be imported without CUDA. Transformer Engine, ModelOpt, the resiliency
extension and the packages of images and videos are stand-ins that hold nothing, the device is answered for as a Hopper,
and the models' configurations are ours in place of the hub's. What those parts would refuse, and everything from the
process group on, was not seen.

{chr(10).join(table)}

Plans by model: {spread}. Refused by name by the exporter before that, by field: {fields or "none"}.
"""


def main(words: list[str]) -> None:
    """Print the page, and write it where asked."""
    (python,) = [word for word in words if not word.startswith("--")]
    text = page(python)
    print(text)
    if "--write" in words:
        (HERE / "bridge-accepts.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
