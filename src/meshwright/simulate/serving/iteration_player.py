"""Play the Program of a serving replica's iterations, priced item by item.

A pass takes its items one after the other, or a layer's as a pool's form of overlap runs them, and the host's seconds
of a stage. Messages between stages go over links of their own, and keep no rank; tokens go back to the first stage
through the host, in its seconds. The period of a micro-batch's iterations, once they are steady, is what
``cost/serving/iteration.py`` has in closed form.
"""

from meshwright.cost.serving.iteration import ReplicaCost, stage_host_seconds
from meshwright.cost.serving.operators import ServingLocal, collective_seconds, kernel_seconds
from meshwright.cost.serving.overlap_forms import FORMS
from meshwright.play.clocks import FLOATS, Clocks
from meshwright.play.execution_order import Step
from meshwright.play.messages_and_barriers import Links
from meshwright.play.player import Player
from meshwright.program.pass_items import Collective, Compute, Item
from meshwright.program.program import Program
from meshwright.program.serving.iteration_program import Iterations, Replica, iteration_program
from meshwright.program.serving.iteration_shape import IterationLoad
from meshwright.simulate.program_order import program_order
from meshwright.simulate.simulation_result import Record, Simulation

STEADY_ITERATIONS = 4
"""Iterations after which those of a pipeline come at equal distances."""
STREAMS = {"F": "compute", "SEND_F": "send"}


def steady_iteration(cost: ReplicaCost, load: IterationLoad, occupancy: float = 0.0) -> Simulation:
    """Play iterations of a replica, with a micro-batch under way for each stage, until they are steady.

    ``occupancy``: the part of a message's time for which it keeps its sender.
    """
    replica = Replica(model=cost.model, degrees=cost.degrees, formats=cost.formats)
    count = STEADY_ITERATIONS if cost.degrees.pp > 1 else 1
    program = iteration_program(replica, Iterations(load=load, count=count))
    return play_iterations(program, cost, load, occupancy)


def play_iterations(
    program: Program, cost: ReplicaCost, load: IterationLoad, occupancy: float = 0.0
) -> Simulation:
    """Play a replica's Program; the period is that of its last two iterations."""
    steps, clocks = program_order(program), Clocks(program.pipeline_ranks, FLOATS)
    player = Player(clocks, {"F": pass_seconds(program, cost, load)}, {})
    links = _links(program, cost, clocks, occupancy)
    player.handlers |= {"SEND_F": links.send, "RECV_F": links.receive}
    player.play(steps)
    simulation = Simulation(_records(program, steps, clocks))
    ends = iteration_ends(simulation, program)
    return Simulation(simulation.ranks, ends[-1] - ends[-2]) if len(ends) > 1 else simulation


def iteration_ends(simulation: Simulation, program: Program) -> list[float]:
    """Return when the last micro-batch ends each of its iterations."""
    ranks, last = program.pipeline_ranks, program.micro_batches - 1
    return [
        record.end
        for record in simulation.ranks[-1]
        if record.action.kind == "F"
        and record.action.micro_batch == last
        and (record.action.stage or 0) % ranks == ranks - 1
    ]


def pass_seconds(program: Program, cost: ReplicaCost, load: IterationLoad) -> dict[int, float]:
    """Return the seconds of every stage's pass."""
    local = cost.local(load)
    blocks = {
        index: sum(_item_seconds(item, program, local) for item in items)
        for (index, _), items in program.block_items.items()
    }
    if cost.overlap != "none":
        overlapped = {index: FORMS[cost.overlap](program.blocks[index], local) for index in blocks}
        layers = (index for index in blocks if program.blocks[index].kind == "layer")
        blocks |= {index: min(blocks[index], float(overlapped[index])) for index in layers}
    host = float(stage_host_seconds(cost, local))
    return {
        stage: host + sum(part.count * blocks[part.block] for part in body if part.block is not None)
        for (stage, _), body in program.bodies.items()
    }


def _item_seconds(item: Item, program: Program, local: ServingLocal) -> float:
    if isinstance(item, Compute):
        return float(kernel_seconds(item.operator, local))
    assert isinstance(item, Collective), "nothing overlaps in an iteration"
    return float(collective_seconds(item, local.times, program.group_size, local.allreduce))


def _links(program: Program, cost: ReplicaCost, clocks: Clocks, occupancy: float) -> Links:
    """Return the links between stages; each message takes as long as the slowest of its ranks'."""
    seconds, targets = {}, {}
    ranks, forms = program.pipeline_ranks, cost.times.forms
    for stage in program.stages[:-1]:
        to = program.stages[stage.index + 1].rank
        pairs = zip(program.parts.members(stage.rank), program.parts.members(to), strict=True)
        crosses = any(a // forms.domain != b // forms.domain for a, b in pairs)
        hands_back = stage.rank == ranks - 1
        sent = 0.0 if hands_back else float(forms.p2p(program.parts[0].message_bytes, crosses))
        seconds["SEND_F", stage.index], targets["SEND_F", stage.index] = sent, to
    return Links(clocks, seconds, occupancy, targets)


def _records(program: Program, steps: list[Step], clocks: Clocks) -> tuple[tuple[Record, ...], ...]:
    found: list[list[Record]] = [[] for _ in program.lists]
    todo = [iter(actions) for actions in program.lists]
    for step, start, end in zip(steps, clocks.starts, clocks.ends, strict=True):
        action = next(todo[step.rank])
        if action.kind in STREAMS:
            found[step.rank].append(Record(action, start, end, STREAMS[action.kind]))
    return tuple(map(tuple, found))
