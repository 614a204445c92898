"""Units: micro-batches that go through a schedule together, one unit behind the other."""


def unit_of(micro_batch: int, unit: int) -> int:
    """The unit that a micro-batch belongs to."""
    return micro_batch // unit


def units(micro_batches: int, unit: int) -> list[range]:
    """The micro-batches of every unit; the last unit may have fewer."""
    return [range(first, min(first + unit, micro_batches)) for first in range(0, micro_batches, unit)]
