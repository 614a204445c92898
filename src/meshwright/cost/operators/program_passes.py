"""Seconds of the passes and optimizer steps of a Program, copies of states included."""

from meshwright.cost.closed_form.overlap_and_optimizer import optimizer_seconds
from meshwright.cost.operators.base_change_times import change_seconds
from meshwright.cost.operators.muon_times import orthogonalisation_seconds
from meshwright.cost.operators.pass_prices import Parts, Prices, add_parts, total
from meshwright.cost.operators.perturbation_times import perturbation_seconds, update_seconds
from meshwright.cost.pipeline_time.host_state_copies import exposed_copies, step_seconds
from meshwright.cost.pipeline_time.offload_copy_streams import OFFLOAD
from meshwright.program.model_states.base_changes import CHANGE_AXES
from meshwright.program.model_states.hidden_matrices import stage_matrices
from meshwright.program.program import Program, matrix_elements
from meshwright.schedules.action import Kind


def pass_parts(program: Program, prices: Prices) -> dict[tuple[int, Kind], Parts]:
    """Return the seconds of each pass over each stage, by part."""
    found = {key: prices.body(body) for key, body in program.bodies.items()}
    for key, copies in program.state_copies.items():
        late = exposed_copies(copies, total(found[key]), prices.local.forms)
        found[key] = add_parts(found[key], {OFFLOAD: late})
    return found


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
        exchanged = prices.collectives(items)  # those of matrices are priced with their products
        blocks = [program.blocks[block] for block in stage.blocks]
        part = program.parts.only
        replicas, gathered = program.group_size(CHANGE_AXES), part.sharding == "zero3"
        changed = change_seconds(blocks, replicas, gathered, part.shape, forms)
        seconds = seconds + exchanged + changed
        of_stage = stage_matrices((program.blocks[block] for block in stage.blocks), stack)
        seconds = seconds + orthogonalisation_seconds(
            of_stage, part.sharding, part.shape, stack, prices.mesh, forms
        )
    return float(seconds)
