import pytest

from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.micro_batch_units import unit_of, units
from meshwright.schedules.schedule_kind import nearest_unit


@pytest.mark.parametrize(("micro_batches", "unit"), [(1, 1), (8, 4), (9, 4), (3, 8), (12, 1)])
def test_units_hold_every_micro_batch_once_and_know_it(micro_batches, unit):
    together = units(micro_batches, unit)
    assert [m for members in together for m in members] == list(range(micro_batches))
    assert all(unit_of(m, unit) == number for number, members in enumerate(together) for m in members)
    assert all(len(members) == unit for members in together[:-1])


@pytest.mark.parametrize("name", [name for name, kind in SCHEDULES.items() if "unit" in kind.depends_on])
def test_a_unit_has_no_more_micro_batches_than_a_step(name):
    choice = ScheduleChoice(name, unit=16)
    assert choice.fault(4, 16) is None
    assert choice.fault(4, 12) == "unit = 16 ≤ micro-batches = 12 must hold"
    assert nearest_unit(choice.kind, 4, 12, 16) == 12
