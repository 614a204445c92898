"""Rules on stages, states and bodies: every layer once and in order in each chain, every parameter's elements once."""

from collections import Counter
from collections.abc import Iterator, Sequence

from meshwright.errors import Problem
from meshwright.program.checks.checked_program import CheckedProgram, Rule
from meshwright.program.checks.expected_state_coverage import Coverage, coverage
from meshwright.program.model_states.hidden_matrices import MATRICES, stage_matrices
from meshwright.program.model_states.state_elements import (
    DENSE_SHARD_AXES,
    EXPERT_SHARD_AXES,
    OWN,
    STATE_KINDS,
    StateEntry,
    StateKind,
)
from meshwright.program.pass_items import Body
from meshwright.program.pipeline_vocabulary import SHARE_PASSES, share_blocks
from meshwright.program.program import Stage


def every_layer_once(case: CheckedProgram) -> Iterator[Problem]:
    """Require each chain to hold embedding, layers 0 … L−1 and head in turn, and every rank to have a stage."""
    stages, ways = case.program.stages, case.program.ways
    for first in range(0, ways.stages, ways.length):
        yield from _chain_problems(case, stages[first : first + ways.length])
    if [stage.index for stage in stages] != list(range(len(stages))):
        yield Problem("stages", [stage.index for stage in stages], "stages are counted from 0", "in order")
    ranks, used = set(range(case.program.pipeline_ranks)), {stage.rank for stage in stages}
    if ranks != used:
        yield Problem(
            "stages", sorted(used), f"pipeline ranks are {sorted(ranks)}", "a stage for each of them"
        )


def _chain_problems(case: CheckedProgram, stages: Sequence[Stage]) -> Iterator[Problem]:
    model = case.model
    blocks = [block for stage in stages for block in stage.blocks]
    expected = [block for block, repeat in model.chain for _ in range(repeat)]
    if blocks != expected:
        rule = f"the stages hold {_first_difference(blocks, expected)}"
        yield Problem("stages", blocks, rule, "every block of the model once, in order")
    layers = [layer for stage in stages for layer in stage.layers]
    if layers != list(range(len(model.layer_blocks))):
        rule = f"the stages hold {_first_difference(layers, range(len(model.layer_blocks)))}"
        yield Problem("stages", layers, rule, f"layers 0 … {len(model.layer_blocks) - 1} once, in order")


def _first_difference(found: Sequence[int], expected: Sequence[int]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
    if at is None:
        return f"{len(found)} where the model has {len(expected)}"
    return f"{found[at]} in place {at} where the model has {expected[at]}"


def every_state_once(case: CheckedProgram) -> Iterator[Problem]:
    """Each parameter's elements are in one row of each kind: neither left out nor counted twice."""
    rows = Counter(_key(row) for row in case.program.states)
    entries = {_key(row): row for row in case.program.states}
    for row in coverage(case.program, case.model):
        key = row.unit.stage, row.unit.name, row.kind, row.unit.index
        entry, count = entries.pop(key, None), rows[key]
        if entry is None or count > 1:
            yield Problem("states", key, f"is in {count} rows", "one row for each unit and kind")
        else:
            yield from _row_problems(entry, row)
    yield from _matrix_problems(case, entries)
    for key in entries:
        yield Problem("states", key, "no stage holds such a unit", "take the row out")


RowKey = tuple[int, str, StateKind, int]
"""Stage, name, kind and part of a row."""


def _key(row: StateEntry) -> RowKey:
    return row.stage, row.name, row.kind, row.part


def _matrix_problems(case: CheckedProgram, entries: dict[RowKey, StateEntry]) -> Iterator[Problem]:
    """Require the rows of Muon's matrices, and take them out: the mean of the ranks that share them, or more of it.

    The rank with most has at most one matrix above the mean.
    """
    program = case.program
    if not program.stack.optimizer.kind.of_matrices:
        return
    for stage in program.stages:
        matrices = stage_matrices((program.blocks[block] for block in stage.blocks), program.stack)
        for expert, name in MATRICES.items():
            kinds = {
                m: n * m.local_count(program.parts.only.shape)
                for m, n in matrices.items()
                if m.expert is expert
            }
            if not kinds:
                continue
            entry = entries.pop((stage.index, name, "optimizer", 0), None)
            every = sum(number * m.elements(program.parts.only.shape) for m, number in kinds.items())
            grid = program.parts.only.expert_grid if expert else program.parts.only.grid
            shard_axes = EXPERT_SHARD_AXES if expert else DENSE_SHARD_AXES
            shards = grid.size(shard_axes) if entry and entry.layout[-1] in shard_axes else 1
            most = every / shards + max(m.elements(program.parts.only.shape) for m in kinds) * (shards > 1)
            if entry is None or not every <= entry.elements * shards or entry.elements > most:
                rule = f"the rank with most holds from {every}/{shards} to {most:g} elements"
                held = entry.elements if entry else None
                yield Problem(f"states.{stage.index}.{name}", held, rule, str(-(-every // shards)))


def _row_problems(entry: StateEntry, row: Coverage) -> Iterator[Problem]:
    unit = row.unit
    field = f"states.{entry.stage}.{entry.name}.{entry.kind}"
    if entry.layout not in (unit.axes, unit.axes + unit.shard_axes):
        rule = f"its elements are cut over {unit.axes}, and perhaps over {unit.shard_axes}"
        yield Problem(f"{field}.layout", entry.layout, rule, str(unit.axes))
    if entry.layers != unit.layers or entry.repeat != unit.repeat:
        rule = f"the stage has layers {unit.layers}, {unit.repeat} blocks of this kind"
        yield Problem(f"{field}.layers", entry.layers, rule, str(unit.layers))
    if entry.elements != row.local:
        rule = f"elements·ranks must be {row.elements} of the model + {row.copies} copies + {row.padding} padding"
        yield Problem(f"{field}.elements", entry.elements, rule, str(row.local))


def sharded_alike(case: CheckedProgram) -> Iterator[Problem]:
    """Require a part to shard each kind of state everywhere or nowhere, and gathered states to be kept sharded."""
    for part in range(len(case.program.parts)):
        yield from _sharded_alike([row for row in case.program.states if row.part == part])


def _sharded_alike(states: Sequence[StateEntry]) -> Iterator[Problem]:
    sharded: dict[str, set[bool]] = {kind: set() for kind in STATE_KINDS}
    for row in states:
        if not row.name.endswith(OWN.suffix):
            sharded[row.kind].add(any(axis.endswith("shard") for axis in row.layout))
    for kind, found in sharded.items():
        if len(found) > 1:
            yield Problem("states", kind, "is sharded in some rows only", "all rows of a kind alike")
    sharded = {kind: found for kind, found in sharded.items() if found}
    order = [any(sharded[kind]) for kind in sharded]  # parameter ⇒ gradient ⇒ optimizer
    if order != sorted(order):
        rule = "a sharded parameter has sharded gradients, a sharded gradient sharded optimizer states"
        yield Problem("states", dict(zip(sharded, order, strict=True)), rule, "shard the optimizer first")


def bodies_hold_stages(case: CheckedProgram) -> Iterator[Problem]:
    """Require the body of each pass to run the blocks of its stage, forward or backward."""
    program = case.program
    kinds = {action.kind for actions in program.lists for action in actions} & {"F", "B", "I", "W"}
    for stage in program.stages:
        for kind in sorted(kinds):
            key = (stage.index, kind)
            blocks = _blocks(program.bodies[key]) if key in program.bodies else []
            expected = list(stage.blocks) if kind == "F" else list(reversed(stage.blocks))
            if blocks != expected:
                rule = f"the pass holds {_first_difference(blocks, expected)}"
                yield Problem(f"bodies.{stage.index}{kind}", blocks, rule, str(expected))
    for share in program.shares:
        for passed in SHARE_PASSES:
            body = program.bodies.get((share.index, passed), ())
            if tuple(_blocks(body)) != share_blocks(case.model, passed):
                rule = f"the pass holds {_blocks(body)}"
                yield Problem(
                    f"bodies.{share.index}{passed}",
                    _blocks(body),
                    rule,
                    str(share_blocks(case.model, passed)),
                )


def _blocks(body: Body) -> list[int]:
    return [s.block for s in body if s.block is not None for _ in range(s.count)]


STATE_RULES: tuple[Rule, ...] = (every_layer_once, every_state_once, sharded_alike, bodies_hold_stages)
