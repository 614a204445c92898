"""The passes and messages of a Program's stages, with the prices that the simulator takes."""

from itertools import accumulate

from meshwright.cost.operators.pass_prices import Prices, total
from meshwright.cost.operators.program_passes import message_times, pass_parts
from meshwright.program.program import Program
from meshwright.schedules.action import RECEIVES, SENDS, Action
from meshwright.simulate.churn.peers import Work
from meshwright.simulate.simulator import message_occupancy

PASSES = ("F", "B")
"""The passes that are routed."""
ROUTED = (*PASSES, *SENDS, *RECEIVES)


def program_work(program: Program, prices: Prices, tail_s: float = 0.0, slowdown: float = 1.0) -> Work:
    """Return the work of a Program with one stage on each pipeline rank; all seconds times ``slowdown``."""
    passes = {key: slowdown * float(total(parts)) for key, parts in pass_parts(program, prices).items()}
    messages = {key: slowdown * seconds for key, seconds in message_times(program, prices).items()}
    stages = range(len(program.stages))
    orders = tuple("".join(a.kind for a in actions if a.kind in PASSES) for actions in program.lists)
    return Work(
        forward_s=tuple(passes[stage, "F"] for stage in stages),
        backward_s=tuple(passes[stage, "B"] for stage in stages),
        forward_message_s=tuple(messages.get(("SEND_F", stage), 0.0) for stage in stages),
        backward_message_s=tuple(messages.get(("SEND_B", stage), 0.0) for stage in stages),
        occupancy=message_occupancy(program, prices.local.forms),
        in_flight=tuple(max(accumulate(1 if kind == "F" else -1 for kind in order)) for order in orders),
        orders=orders,
        tail_s=slowdown * tail_s,
    )


def routed_lists(program: Program) -> tuple[tuple[Action, ...], ...]:
    """Return a Program's lists without all that is neither a pass nor a message between stages."""
    return tuple(tuple(action for action in actions if action.kind in ROUTED) for actions in program.lists)
