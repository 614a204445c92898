"""Compare the copies of model states that a rank logged in a step with planning's.

Passes are compared one by one, everything around them as the rest of the step: what leaves or comes back for the
optimizer, and gradients on the host that return for a sum over tp ranks or with another stage. Shares are cut in whole
elements, so that one element for each parameter may be counted elsewhere.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from meshwright.program.model_states.states_on_host import HostStates
from meshwright.program.program import Program
from meshwright.runtime.comm.host_link import StateCopy
from meshwright.runtime.verify.expected_traffic import STEP

TP = ("tp",)
MOST_BYTES = 4
"""The largest element that is copied."""
Copies = dict[str, Counter[str]]
"""Bytes by action and direction."""


def differing_copies(program: Program, pipeline_rank: int, log: Sequence[StateCopy]) -> list[str]:
    """Return the differences between the log of one step and what planning counts, as text."""
    if program.host_states is None:
        return []
    expected = expected_copies(program, pipeline_rank)
    logged: Copies = {action: Counter() for action in expected}
    for entry in log:
        logged[entry.action if entry.action in expected else STEP][entry.way] += entry.logical_bytes
    return list(_differences(expected, logged, MOST_BYTES * _parameters(program, pipeline_rank)))


def expected_copies(program: Program, pipeline_rank: int) -> Copies:
    """Return the copied bytes of a rank in a step: by pass, and for the rest of the step."""
    states = program.host_states
    assert states is not None
    step = states.step_copies(program.held_elements(pipeline_rank, "optimizer"))
    returned = _returned(program, states, pipeline_rank) if states.leave else 0
    expected: Copies = {
        STEP: Counter({"out": int(step.out_bytes) + returned, "back": int(step.back_bytes) + returned})
    }
    for action in program.lists[pipeline_rank]:
        if action.stage is not None and (action.stage, action.kind) in program.state_copies:
            copies = program.state_copies[action.stage, action.kind]
            expected[str(action)] = Counter({"out": int(copies.out_bytes), "back": int(copies.back_bytes)})
    return expected


def _returned(program: Program, states: HostStates, pipeline_rank: int) -> int:
    """Return the bytes of gradients that come back for a reduction after the passes, and leave again."""
    mine = {part.index for part in program.sections_of(pipeline_rank)}
    items = [
        item
        for (stage, kind), of_kind in program.collectives.items()
        for item in of_kind
        if (kind == "REDUCE" and stage in mine and item.axes == TP and not states.reduced)
        or (kind == "REDUCE_TIED" and pipeline_rank in program.end_ranks)
    ]
    width = program.stack.gradient_communication_bytes
    return sum(
        width * int(np.floor(states.shares.optimizer * (item.logical_bytes / width))) for item in items
    )


def _parameters(program: Program, pipeline_rank: int) -> int:
    """Return the number of a rank's parameters."""
    blocks = [block for part in program.sections_of(pipeline_rank) for block in part.blocks]
    return sum(len(op.parameters) for block in blocks for op in program.blocks[block].operators)


def _differences(expected: Copies, logged: Copies, slack: int) -> Iterator[str]:
    for action, ways in expected.items():
        for way in ("out", "back"):
            found = logged[action][way]
            if abs(found - ways[way]) > slack:
                yield f"{action}: {found} bytes of states copied {way}, {ways[way]} counted"
