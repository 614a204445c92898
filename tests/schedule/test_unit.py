import pytest

from meshwright.schedule.unit import unit_of, units


@pytest.mark.parametrize(("micro_batches", "unit"), [(1, 1), (8, 4), (9, 4), (3, 8), (12, 1)])
def test_units_hold_every_micro_batch_once_and_know_it(micro_batches, unit):
    together = units(micro_batches, unit)
    assert [m for members in together for m in members] == list(range(micro_batches))
    assert all(unit_of(m, unit) == number for number, members in enumerate(together) for m in members)
    assert all(len(members) == unit for members in together[:-1])
