"""Split a step's passes and a device's memory by block: what the embedding, each layer and the head cost in a plan.

Numbers are those of one device of the pipeline rank that holds the block, or of each of several ranks that share it.
Seconds are of all its passes in a step, with the state exchanges that overlap them; changes of layout, copies and
exchanges that nothing hides belong to no block, and are ``between_s``. States are the parameters, gradients and
optimizer states that the device owns, here or on its host, without buffers. Activations are what its rank keeps at its
peak: micro-batches in flight then × bytes kept of each. So blocks of a pipeline rank sum to its passes, to its rows of
the state table, and to its peak of activations. Where a schedule has the model twice on its ranks, the first of its two
ways counts. States of matrices that Muon takes count evenly over the layers of their stage.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from meshwright.cost.operators.pass_prices import Prices, total
from meshwright.cost.operators.price_plans import program_prices
from meshwright.cost.pipeline_time.host_state_copies import exposed_copies
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.setting import Setting
from meshwright.program.program import Program, Stage
from meshwright.schedules.action import PASS_KINDS
from meshwright.simulate.memory_ledger import activation_curve
from meshwright.simulate.plan_estimate import lowered


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """Costs at place 0 of the embedding and an encoder, 1 to L of the layers, L + 1 of the head.

    ``activations_bytes`` is None where some of them are copied to the host.
    """

    passes_s: tuple[float, ...]
    states_bytes: tuple[float, ...]
    activations_bytes: tuple[float, ...] | None
    between_s: float


def block_costs(plan: LongPlan, setting: Setting) -> BlockCosts:
    """Return the costs of a legal plan's blocks. Chunks of states count as without them."""
    program = lowered(plan.model_copy(update={"offload": None}) if plan.in_chunks else plan, setting)
    return program_block_costs(program, program_prices(program, setting))


def program_block_costs(program: Program, prices: Prices) -> BlockCosts:
    """Return the costs of a Program's blocks."""
    sections = (*program.stages[: len(program.stages) // program.chains], *program.shares)
    count = 2 + sum(len(section.layers) for section in sections)
    passes, states, activations = [0.0] * count, [0.0] * count, [0.0] * count
    between_s = 0.0
    for section in sections:
        places = _places(program, section, count)
        for at, seconds in _pass_seconds(program, prices, section):
            if at is None:
                between_s += seconds
            else:
                passes[places[at]] += seconds
        for place, size in zip(places, _activations(program, prices, section), strict=True):
            activations[place] += size
        for place, size in _states(program, section, count):
            states[place] += size
    copied = any(program.offloaded_bytes)
    return BlockCosts(tuple(passes), tuple(states), None if copied else tuple(activations), between_s)


def _places(program: Program, stage: Stage, count: int) -> list[int]:
    """Return the place of each of a stage's blocks."""
    layers, kinds = iter(stage.layers), [program.blocks[block].kind for block in stage.blocks]
    return [1 + next(layers) if kind == "layer" else _end(kind, count) for kind in kinds]


def _pass_seconds(program: Program, prices: Prices, stage: Stage) -> Iterator[tuple[int | None, float]]:
    """Yield seconds of a step's passes over a stage with the block's index there; None for what no block has."""
    done = Counter(action.kind for action in program.lists[stage.rank] if action.stage == stage.index)
    for kind in (kind for kind in PASS_KINDS if done[kind]):
        body = program.bodies[stage.index, kind]
        order = iter(range(len(stage.blocks)) if kind == "F" else reversed(range(len(stage.blocks))))
        for segment in body:
            seconds = done[kind] * float(total(prices.body((segment,))))
            if segment.block is None:
                yield None, seconds
            else:
                own = (at for at in order if stage.blocks[at] == segment.block)
                yield from ((at, seconds / segment.count) for at in islice(own, segment.count))
        copies = program.state_copies.get((stage.index, kind))
        if copies is not None:
            late = exposed_copies(copies, total(prices.body(body)), prices.local.forms)
            yield None, done[kind] * float(late)


def _activations(program: Program, prices: Prices, section: Stage) -> Iterator[float]:
    """Yield the bytes kept of each block at the peak of the section's rank; what a share keeps is its head's."""
    waiting, for_weights = _in_flight(program, section)
    for block in section.blocks:
        if section in program.shares:
            is_head = program.blocks[block].kind == "head"
            yield float(is_head * waiting * program.activation_bytes[section.index])
        else:
            yield float(waiting * prices.kept[block] + for_weights * prices.kept_for_weights[block])


def _in_flight(program: Program, stage: Stage) -> tuple[int, int]:
    """Return a stage's micro-batches that wait for B, I or T, and for W, when its rank keeps most."""
    curve = activation_curve(program, stage.rank)
    peak, _ = max(curve, key=lambda point: point[1])
    until = program.lists[stage.rank][: peak + 1]
    done = Counter(action.kind for action in until if action.stage == stage.index)
    waiting = done["F"] - done["B"] - done["I"] + done["S"] - done["T"]
    return waiting, done["I"] - done["W"]


def _states(program: Program, stage: Stage, count: int) -> Iterator[tuple[int, float]]:
    """Yield places with bytes of a stage's rows of the state table; the units of a row are alike."""
    ends = {block.name: _end(block.kind, count) for block in program.blocks if block.kind != "layer"}
    for row in (row for row in program.states if row.stage == stage.index):
        end = [] if row.layers else [place for name, place in ends.items() if row.name.startswith(name)][:1]
        places = end or [1 + layer for layer in row.layers or stage.layers]
        yield from ((place, row.total_bytes / len(places)) for place in places)


def _end(kind: str, count: int) -> int:
    """Return the place of the head, or of the embedding, with which an encoder stands."""
    return count - 1 if kind == "head" else 0
