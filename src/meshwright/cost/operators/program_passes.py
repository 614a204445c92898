"""Seconds of the passes and optimizer steps of a Program, copies of states included."""

from meshwright.cost.closed_form.overlap_and_optimizer import optimizer_seconds
from meshwright.cost.operators.base_change_times import change_seconds
from meshwright.cost.operators.muon_times import orthogonalisation_seconds
from meshwright.cost.operators.pass_prices import (
    Parts,
    Prices,
    add_parts,
    message_seconds,
    reshard_seconds,
    total,
)
from meshwright.cost.operators.perturbation_times import perturbation_seconds, update_seconds
from meshwright.cost.pipeline_time.host_state_copies import exposed_copies, step_seconds
from meshwright.cost.pipeline_time.offload_copies import OFFLOAD
from meshwright.program.model_states.base_changes import CHANGE_AXES
from meshwright.program.model_states.hidden_matrices import stage_matrices
from meshwright.program.program import Program, matrix_elements, message_part, message_reshard
from meshwright.schedules.action import Action, Kind

FROM_AND_TO_STAGE: tuple[Kind, ...] = ("RECV_F", "SEND_B")
"""The messages between a stage and the one before."""


def pass_parts(program: Program, prices: Prices) -> dict[tuple[int, Kind], Parts]:
    """Return the seconds of each pass over each stage, by part."""
    found = {key: prices.body(body) for key, body in program.bodies.items()}
    for key, copies in program.state_copies.items():
        late = exposed_copies(copies, total(found[key]), prices.local.forms)
        found[key] = add_parts(found[key], {OFFLOAD: late})
    return found


def program_message_seconds(program: Program, prices: Prices, message: Action) -> float:
    """Return the seconds of a message between two pipeline ranks; with a change of layout, of the busiest rank."""
    part = message_part(program, message)
    (local, mesh), reshard = prices.of_part(part), message_reshard(program, message)
    if reshard is None:
        return float(message_seconds(mesh, local.forms, program.parts[part].message_bytes))
    moved = reshard.moved("F" if message.kind.endswith("_F") else "B")
    return float(reshard_seconds(moved, local.forms, mesh.congestion(("pp",), "p2p")))


def message_times(program: Program, prices: Prices) -> dict[tuple[Kind, int | None], float]:
    """Return the seconds of the messages that every stage sends, by kind and stage."""
    sends = {a for actions in program.lists for a in actions if a.kind in ("SEND_F", "SEND_B")}
    kinds = {(send.kind, send.stage): send for send in sends}
    return {key: program_message_seconds(program, prices, send) for key, send in kinds.items()}


def slowest_message_seconds(program: Program, prices: Prices) -> float:
    """Return the seconds of the slowest message between stages; with one stage, of a message to itself."""
    stages = [stage.index for stage in program.stages if not program.ways.is_first(stage.index)]
    messages = [Action(kind, stage, 0) for stage in stages or [0] for kind in FROM_AND_TO_STAGE]
    return max(program_message_seconds(program, prices, message) for message in messages)


def rank_perturbation_seconds(program: Program, prices: Prices, rank: int) -> float:
    """Return the seconds in which a pipeline rank moves its parameters to another point."""
    held, states = program.held_elements(rank, "parameter"), program.host_states
    return float(perturbation_seconds(held, program.stack, prices.local.forms, states))


def rank_step_seconds(program: Program, prices: Prices, rank: int) -> float:
    """Return the seconds of a pipeline rank's optimizer step, on its device and its host."""
    forms, stack = prices.local.forms, program.stack
    if program.stack.optimizer.forward_only:
        held = program.held_elements(rank, "parameter")
        return float(update_seconds(held, stack, forms, program.host_states))
    if program.host_states is not None:
        return float(step_seconds(program.held_elements(rank, "optimizer"), program.host_states, forms))
    matrices = matrix_elements(program, rank)
    owned = program.held_elements(rank, "optimizer") - matrices
    seconds = optimizer_seconds(owned, stack, forms, matrices)
    for stage in program.stages_of(rank):
        items = () if stack.optimizer.kind.of_matrices else program.collectives.get((stage.index, "STEP"), ())
        seconds = seconds + prices.collectives(items)  # those of matrices are priced with their products
        for index, numbers in program.parts.blocks_by_part(stage.blocks).items():
            part, (_, mesh) = program.parts[index], prices.of_part(index)
            blocks = [program.blocks[block] for block in numbers]
            replicas, gathered = program.group_size(CHANGE_AXES, index), part.sharding == "zero3"
            seconds = seconds + change_seconds(blocks, replicas, gathered, part.shape, forms)
            matrices_of = stage_matrices(blocks, stack)
            seconds = seconds + orthogonalisation_seconds(
                matrices_of, part.sharding, part.shape, stack, mesh, forms
            )
    return float(seconds)
