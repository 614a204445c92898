"""Memory of a Program over its action lists: the peak of every rank, action by action.

The order of a list alone decides how many passes of each stage are held when (``play/in_flight.py``), so no durations
are needed; ``program/activation_bytes.py`` has the bytes of each.
Where steps are validated afterwards, what they overwrite is kept meanwhile.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from meshwright.cluster.cluster import Cluster
from meshwright.cost.memory.backward_peak import Moment, StageBlocks, moments, worst_moment
from meshwright.cost.memory.memory_breakdown import workspace_bytes
from meshwright.cost.memory.zero_unsharded_buffers import (
    ZeroBufferRule,
    stage_buffer_bytes,
    unit_buffer_bytes,
    whole_parameter_bytes,
)
from meshwright.play.in_flight import changes_along, host_changes
from meshwright.program.activation_bytes import kept_bytes, logit_bytes, working_bytes
from meshwright.program.local_shape import LocalShape, Mode, Number
from meshwright.program.lowering.optimizer_post_validation import saves_states
from meshwright.program.model_states.data_parallel_collectives import add
from meshwright.program.model_states.peak_unsharded_stages import peak_unsharded_stages
from meshwright.program.model_states.state_elements import (
    Elements,
    StateKind,
    bytes_per_element,
    elements_of_parts,
    embedding_names,
)
from meshwright.program.model_states.states_on_host import host_bytes
from meshwright.program.pipeline_vocabulary import ends_together
from meshwright.program.program import Program, Stage
from meshwright.program.program_parts import Part
from meshwright.program.synchronisation.kept_bytes import kept_bytes_of
from meshwright.schedules.activation_offload import COPIES
from meshwright.stack.stack import Stack


def rank_ledger(program: Program, rank: int, cluster: Cluster) -> dict[str, int]:
    """Peak of one pipeline rank by kind, in bytes."""
    stages, rules = program.sections_of(rank), [_buffer_rule(part) for part in program.parts]
    every = elements_of_parts(program.blocks, program.parts, ends_together=ends_together(program))

    def rule(block: int) -> ZeroBufferRule:
        return rules[program.parts.of_blocks[block]]

    found = [m for s in stages for m in moments(_stage_blocks(program, s, every), rule, program.stack)]
    worst = worst_moment([Moment(0, 0), *found])
    working, buffers, freed = (int(part) for part in (worst.working, worst.buffers, worst.freed))
    whole = {part for part, of in enumerate(rules) if of.gradients_are_whole}
    return {
        "parameters": _device_bytes(program, rank, "parameter"),
        "gradients": _gradient_shard_bytes(program, rank, whole),
        "optimizer": _device_bytes(program, rank, "optimizer") * (1 + saves_states(program, rank)),
        "activations": peak_activation_bytes(program, rank) + min(working - freed, 0),
        "working": max(working - freed, 0),
        "buffers": _buffers_of_host_states(program, rank, every)
        + (
            _unit_buffers(program, rank, every)
            if program.parts.by_unit
            else buffers + _stage_buffers(program, rank, every, rules)
        ),
        "workspace": int(workspace_bytes(cluster)),
        **({"synchronise": kept} if (kept := kept_bytes_of(program, rank).device) else {}),
    }


def _buffer_rule(part: Part) -> ZeroBufferRule:
    return ZeroBufferRule(part.sharding, part.mode.gather, part.mode.reduce)


def _gradient_shard_bytes(program: Program, rank: int, whole: Collection[int]) -> int:
    """Return the bytes of gradients on a rank's device, without those of parts that hold them ``whole``, as buffers."""
    if len(whole) == len(program.parts):
        return 0
    mine = {section.index for section in program.sections_of(rank)}
    rows = (row for row in program.states if row.kind == "gradient" and row.stage in mine)
    return _device_bytes(program, rank, "gradient") - sum(
        row.total_bytes for row in rows if row.part in whole
    )


def _stage_buffers(
    program: Program, rank: int, every: Mapping[int, Elements], rules: Sequence[ZeroBufferRule]
) -> int:
    """Return the bytes that are whole during all passes of a rank's stages."""
    blocks = [block for section in program.sections_of(rank) for block in section.blocks]
    return sum(
        int(stage_buffer_bytes(rules[part], add(*(every[block] for block in own)), program.stack))
        for part, own in program.parts.blocks_by_part(blocks).items()
    )


def _device_bytes(program: Program, rank: int, kind: StateKind) -> int:
    """Return the bytes of one kind of state on a rank's device."""
    here = program.elements_on_host(rank, kind)
    held = program.held_bytes(rank, kind)
    if here and here == program.held_elements(rank, kind):
        return 0
    return held - here * bytes_per_element(kind, program.stack)


def _buffers_of_host_states(program: Program, rank: int, every: Mapping[int, Elements]) -> int:
    """Return the bytes of gradients that leave and of parameters that come, on the device."""
    if program.host_states is None:
        return 0
    blocks = dict.fromkeys(block for part in program.sections_of(rank) for block in part.blocks)
    return int(program.host_states.buffer_bytes([every[block] for block in blocks]))


def _stage_blocks(program: Program, stage: Stage, every: Mapping[int, Elements]) -> StageBlocks:
    """Return the blocks of a stage. With the head, and one stage a rank, they free what they kept."""
    blocks = program.blocks

    def of_mode(block: int) -> tuple[LocalShape, Mode, Stack]:
        part = program.parts.of(block)
        return part.shape, part.mode, program.stack

    head = program.stages[-1].blocks[-1]
    has_head = blocks[head].kind == "head" and head in stage.blocks and stage not in program.shares
    alone = len(program.stages) == program.pipeline_ranks and not (program.split or program.shares)
    frees = has_head and alone and not _copies(program, stage)
    return StageBlocks(
        blocks=stage.blocks,
        elements=lambda block: every[block],
        kept=lambda block: kept_bytes(blocks[block], *of_mode(block)) if frees else 0,
        working=lambda block: working_bytes(blocks[block], *of_mode(block)),
        logits=logit_bytes(blocks[head], *of_mode(head)) if frees else 0,
        head=head if has_head else None,
        tied=program.stages[0].blocks[0] if has_head and _is_tied(program, head) else None,
    )


def _copies(program: Program, stage: Stage) -> bool:
    """Return true if a stage's rank has some of its activations on the host at some time."""
    copied = (action for action in program.lists[stage.rank] if action.kind in COPIES)
    return any(program.offloaded_bytes[action.stage or 0] for action in copied)


def _is_tied(program: Program, head: int) -> bool:
    """Return true if the head uses the table of the embedding on its own rank."""
    names = embedding_names(program.blocks)
    tensors = [p for op in program.blocks[head].operators for p in op.parameters if p.name in names]
    return ends_together(program) and any(p.trained or p.storage for p in tensors)


def _unit_buffers(program: Program, rank: int, blocks: Mapping[int, Elements]) -> int:
    """Return the most bytes that a list makes whole at the same time."""
    stages = program.stages_of(rank)
    sizes = [add(*(blocks[b] for b in stage.blocks)) for stage in stages]
    every = [whole_parameter_bytes(size) for size in sizes]
    trained = [size.of("gradient").count for size in sizes]
    whole = peak_unsharded_stages(program.lists[rank], [stage.index for stage in stages], program.overlapped)
    return max(
        int(unit_buffer_bytes(_times(parameters, every), _times(gradients, trained), program.stack))
        for parameters, gradients in whole
    )


def _times(counts: Sequence[int], sizes: Sequence[Number]) -> Number:
    return sum((count * size for count, size in zip(counts, sizes, strict=True)), start=0)


def peak_activation_bytes(program: Program, rank: int) -> int:
    """Largest sum of kept activations along a rank's list."""
    return max(held for _, held in activation_curve(program, rank))


def activation_curve(program: Program, rank: int) -> list[tuple[int, int]]:
    """Return (position in the list, bytes held after it) of passes and copies; again where a copy ends with a pass."""
    held, curve = 0, [(0, 0)]
    for position, stage, waiting, for_weights, on_host in changes_along(program.lists[rank]):
        held += waiting * program.activation_bytes[stage] + for_weights * program.weight_gradient_bytes[stage]
        held -= on_host * program.offloaded_bytes[stage]
        curve.append((position, held))
    return curve


def peak_host_bytes(program: Program, rank: int) -> int:
    """Return the peak bytes of a rank on its host: states, and activations from OFFLOAD until a pass needs them."""
    optimizer, parameter = (program.elements_on_host(rank, kind) for kind in ("optimizer", "parameter"))
    changes = (n * program.offloaded_bytes[stage] for stage, n in host_changes(program.lists[rank]))
    held = int(host_bytes(program.stack, optimizer, parameter)) + kept_bytes_of(program, rank).host
    return max(accumulate(changes, initial=held))
