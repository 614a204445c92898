"""The bytes of kept activations of a pipeline rank over the time of a simulated step."""

from collections.abc import Iterator

from meshwright.program.program import Program
from meshwright.simulate.memory_ledger import activation_curve
from meshwright.simulate.simulation_result import Simulation


def activations_over_time(program: Program, simulation: Simulation, rank: int) -> Iterator[tuple[float, int]]:
    """Yield (seconds, bytes held from then on): up when a forward pass or copy back begins, down when a pass ends.

    What is copied to the host leaves when the pass behind has ended, which waits for the copy.
    """
    records = {record.action: record for record in simulation.ranks[rank]}
    yield 0.0, 0
    before = 0
    for position, held in activation_curve(program, rank):
        if held != before:
            record = records[program.lists[rank][position]]
            yield record.start if held > before else record.end, held
        before = held
