"""Record a checkpoint's plan and model, and list where another run differs. Pure.

Model, workload and precision must be those of the checkpoint. Everything else of a plan may change, and is listed in
the words of plan files. Long values (per-layer numbers of a model, a schedule's action lists) are stored as digests.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import groupby

from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph
from meshwright.program.program import Program, sequences_of_step
from meshwright.runtime.checkpoint.manifest import Manifest
from meshwright.schedules.action import format_actions
from meshwright.workload.optimizer_choice import DEFAULT_OPTIMIZER

LONG = 200
"""Longest value that is stored in full, in characters of JSON; longer ones are stored as digests."""
MOST_CHARACTERS = 60
"""Longest value that an error message prints, in characters of JSON."""
NAMES = ("name", "source", "assumed", "left_out")
"""Fields of an architecture that do not change the computation."""
OF_THAT_RUN = "plan.yaml in the folder of that run has it"
OF_WORKLOAD = ("seq_len", "documents", "global_batch", "optimizer")
"""The facts of a plan that must not change within a run."""
STORED_STATES = {"master": "master copy", "first_moment": "first moment", "second_moment": "second moment"}
"""The states of a checkpoint, by their keys of ``dtypes``."""
WIDTHS = {"fp32": 4, "none": 2, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of the types that states may have; ``none``: no master copy, so parameters have the type of the passes."""


def plan_facts(program: Program) -> dict[str, object]:
    """Return the facts of a Program that decide whether a checkpoint fits, JSON-ready."""
    part = program.parts[0]
    shape, mode, grid = part.shape, part.mode, part.grid
    facts: dict[str, object] = {
        "stack": program.stack.id,
        **{axis: int(grid.sizes[axis]) for axis in sorted(grid.order)},
        "rank_order": grid.order,
        "ep": int(shape.ep),
        "etp": int(shape.etp),
        "sequence_parallel": mode.sequence_parallel,
        "micro_batch": int(shape.micro_batch),
        "batch_share": part.batch_share,
        "state_share": shape.state_share,
        "micro_batches": program.micro_batches,
        "seq_len": int(shape.seq_len),
        "global_batch": sequences_of_step(program),
        "documents": "together" if shape.documents is None else "apart",
        "expert_orders": part.expert_orders,
        "capacity": str(shape.capacity),
        "sharding": {entry.kind: entry.layout for entry in program.states},
        "gather": mode.gather,
        "recompute": _recompute(program),
        "stages": [[stage.rank, len(stage.blocks)] for stage in program.stages],
        "optimizer": str(program.stack.optimizer),
        "dtypes": dict(program.changed_types),
        "schedule": [format_actions(actions) for actions in program.lists],
        "synchronise": [entry.to_data() for entry in program.synchronise],
    }
    return _plain(facts)


def _recompute(program: Program) -> object:
    """Return the recompute setting; if layers differ, (count, setting) for each run of equal layers."""
    blocks = (program.blocks[index] for stage in program.stages for index in stage.blocks)
    words = [block.recompute or "none" for block in blocks if block.kind == "layer"]
    runs = [(len(list(run)), word) for word, run in groupby(words)]
    return runs[0][1] if len(runs) == 1 else runs


def model_facts(model: ModelGraph) -> dict[str, object]:
    """Return the fields of a model's architecture that determine its computation, JSON-ready."""
    return _plain({name: value for name, value in asdict(model.architecture).items() if name not in NAMES})


def _plain(facts: Mapping[str, object]) -> dict[str, object]:
    """Convert each value to what JSON gives back; replace long values by their digest."""
    return {name: _short(json.dumps(value, default=str)) for name, value in facts.items()}


def _short(text: str) -> object:
    return json.loads(text) if len(text) <= LONG else f"sha256 {sha256(text.encode()).hexdigest()[:16]}"


def stored_signature(program: Program) -> str:
    """Return the signature that a checkpoint has: where states are, on devices or hosts, is no part of it."""
    return replace(program, host_states=None, state_copies={}).signature()


def incompatibilities(
    manifest: Manifest, program: Program, model: ModelGraph, precision: str
) -> Iterator[Problem]:
    """Yield a problem for each difference of model, workload or precision, which make another run."""
    there, here = _plans(manifest, program)
    of_workload = {name: there[name] for name in OF_WORKLOAD if name in there}
    yield from differences("workload", of_workload, here, OF_THAT_RUN)
    yield from differences("model", manifest.model, model_facts(model), "the model of that run")
    suggestion = f"--precision {manifest.precision}"
    yield from differences("run", {"precision": manifest.precision}, {"precision": precision}, suggestion)


def plan_changes(manifest: Manifest, program: Program) -> list[str]:
    """Return what a plan changes, as sentences; nothing under the plan that wrote the checkpoint."""
    if manifest.signature == stored_signature(program):
        return []
    there, here = _plans(manifest, program)
    changed = [name for name in there if name in here and there[name] != here[name]]
    texts = [
        f"another {name}"
        if name == "schedule" or _is_long(there[name], here[name])
        else f"{name} {here[name]} in place of {there[name]}"
        for name in changed
    ]
    return [
        f"The plan is another one: {', '.join(texts) or 'the order of its passes'}.",
        *_rounded(there.get("dtypes"), program.changed_types, manifest.precision),
        *_begun_anew(there.get("synchronise"), here["synchronise"]),
    ]


def _rounded(before: object, now: Mapping[str, str], precision: str) -> Iterator[str]:
    """Yield a sentence for each state that is stored in a narrower type than before."""
    if precision == "fp64":
        return
    types = before if isinstance(before, dict) else {}
    for state, name in STORED_STATES.items():
        wide, narrow = str(types.get(state, "fp32")), now.get(state, "fp32")
        if WIDTHS[narrow] < WIDTHS[wide]:
            yield f"Its {name} is rounded once, from {wide} to {narrow}."


def _begun_anew(before: object, now: object) -> Iterator[str]:
    """Yield a sentence on what of exchanges between replicas is not taken over."""
    if before:
        left = "residuals, factors and results on their way are dropped"
        moments = "" if before == now else ", and so are states of outer optimizers"
        yield f"Parameters are those of the replicas' anchor, if they had one: {left}{moments}."


def _plans(manifest: Manifest, program: Program) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return the facts of the checkpoint's plan and of a run's."""
    return {"optimizer": DEFAULT_OPTIMIZER} | dict(manifest.plan), plan_facts(program)


def _is_long(*values: object) -> bool:
    return max(len(json.dumps(value)) for value in values) > MOST_CHARACTERS


def differences(
    what: str, stored: Mapping[str, object], own: Mapping[str, object], suggestion: str
) -> Iterator[Problem]:
    """Yield a problem for each fact that differs between checkpoint and run.

    A fact that only one of them has is skipped.
    """
    for name in (name for name in stored if name in own):
        here, there = stored[name], own[name]
        if here == there:
            continue
        if _is_long(here, there):
            yield Problem(f"{what}.{name}", "...", "is another one in the checkpoint", suggestion)
        else:
            yield Problem(f"{what}.{name}", here, f"in the checkpoint; this run has {there!r}", suggestion)
