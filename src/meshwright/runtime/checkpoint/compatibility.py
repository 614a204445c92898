"""Record a checkpoint's plan and model, and list where another run differs. Pure.

The Program's signature decides whether a checkpoint fits; the recorded facts explain a mismatch in the words of plan
files. Long values (per-layer numbers of a model, a schedule's action lists) are stored as digests.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import groupby

from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph
from meshwright.program.program import Program
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
RESHARDING = "a checkpoint is read under the plan that wrote it: resharding is not supported yet"


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
    """Yield a problem for each difference between the checkpoint and this plan, model and precision."""
    own = stored_signature(program)
    if manifest.signature != own:
        stored = {"optimizer": DEFAULT_OPTIMIZER} | dict(manifest.plan)
        apart = [*differences("plan", stored, plan_facts(program), OF_THAT_RUN)]
        yield from apart
        if apart:
            yield Problem("plan", "another one", RESHARDING, OF_THAT_RUN)
        else:
            rule = f"in the checkpoint; this run's Program is {own}: {RESHARDING}"
            yield Problem("signature", manifest.signature, rule, OF_THAT_RUN)
    yield from differences("model", manifest.model, model_facts(model), "the model of that run")
    yield from differences("run", {"ranks": manifest.ranks}, {"ranks": program.parts.ranks}, OF_THAT_RUN)
    suggestion = f"--precision {manifest.precision}"
    yield from differences("run", {"precision": manifest.precision}, {"precision": precision}, suggestion)


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
        if max(len(json.dumps(value)) for value in (here, there)) > MOST_CHARACTERS:
            yield Problem(f"{what}.{name}", "...", "is another one in the checkpoint", suggestion)
        else:
            yield Problem(f"{what}.{name}", here, f"in the checkpoint; this run has {there!r}", suggestion)
