"""Add up the gradients of a tied table between the embedding's ranks and the head's, where their layouts differ.

Each rank sends the parts of its reduced gradient that ranks of the other stage hold, and adds what they send
(``program/layouts/table_transfers.py``). Both copies are sums of the same two numbers, and equal to the bit.
"""

from collections.abc import Generator

import torch

from meshwright.program.layouts.table_transfers import held_elements, of_rank
from meshwright.program.program import table_transfers_of
from meshwright.runtime.comm.communicator import Communicator, Work

WHAT = "gradient of the embedding table"


def add_other_gradient(communicator: Communicator, gradient: torch.Tensor) -> Generator[Work, None, None]:
    """Add the other stage's gradient of a rank's elements of the table, in place; yield operations to wait for."""
    program, rank = communicator.program, communicator.rank
    rows, width = program.table_shape
    start, _ = held_elements(communicator.part, rank, rows, width)
    gives, takes = of_rank(table_transfers_of(program), rank)
    size = program.stack.gradient_communication_bytes
    received, sent = [], []
    for one in takes:
        memory = gradient.new_empty(one.elements[1] - one.elements[0])
        received.append((one, memory, communicator.receive(memory, one.source, WHAT)))
    for one in gives:
        tensor = gradient[one.elements[0] - start : one.elements[1] - start].clone()
        work = communicator.send(tensor, one.target, WHAT, size * len(tensor), size)
        sent.append((work, tensor))
    for one, memory, work in received:
        yield work
        gradient[one.elements[0] - start : one.elements[1] - start] += memory
    for work, _ in sent:
        yield work
