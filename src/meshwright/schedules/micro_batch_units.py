"""Units: micro-batches that go through a schedule together, one unit behind the other."""


def unit_of(micro_batch: int, unit: int) -> int:
    """Return the unit that a micro-batch belongs to."""
    return micro_batch // unit


def units(micro_batches: int, unit: int) -> list[range]:
    """Return the micro-batches of every unit; the last unit may have fewer."""
    return [range(first, min(first + unit, micro_batches)) for first in range(0, micro_batches, unit)]
