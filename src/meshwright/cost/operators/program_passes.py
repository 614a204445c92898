"""Seconds of passes and optimizer steps of a Program, with the copies of states that they wait for."""

from meshwright.cost.closed_form.overlap_and_optimizer import optimizer_seconds
from meshwright.cost.operators.pass_prices import Parts, Prices, add_parts, total
from meshwright.cost.pipeline_time.host_state_copies import exposed_copies, step_seconds
from meshwright.cost.pipeline_time.offload_copy_streams import OFFLOAD
from meshwright.program.program import Program
from meshwright.schedules.action import Kind


def pass_parts(program: Program, prices: Prices) -> dict[tuple[int, Kind], Parts]:
    """Return the seconds of each pass over each stage, by part."""
    found = {key: prices.body(body) for key, body in program.bodies.items()}
    for key, copies in program.state_copies.items():
        late = exposed_copies(copies, total(found[key]), prices.local.forms)
        found[key] = add_parts(found[key], {OFFLOAD: late})
    return found


def rank_step_seconds(program: Program, prices: Prices, rank: int) -> float:
    """Return the seconds of a pipeline rank's optimizer step."""
    owned, forms, states = program.held_elements(rank, "optimizer"), prices.local.forms, program.host_states
    if states is None:
        return float(optimizer_seconds(owned, program.stack, forms))
    return float(step_seconds(owned, states, forms))
