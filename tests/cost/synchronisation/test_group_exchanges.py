"""Exchanges of a step in closed form against those of the lowered Program."""

from collections import Counter

import pytest
from lattice_plans import MODELS, STACKS, WITH_UNITS, family

from meshwright.cost.operators.price_plans import program_prices
from meshwright.cost.plan_report import group_of
from meshwright.cost.synchronisation.exchanges_in_steps import program_exchanges, step_rows
from meshwright.cost.synchronisation.group_exchanges import group_exchanges
from meshwright.simulate.plan_estimate import lowered

PARTS = {"dp": 1e9, "ep": 1.0}
"""So long that nothing of a row's exposed seconds is cut."""
COUNT = 6


def rows(exchanges):
    found = {(row.state, row.over): row.to_json() for row in step_rows(exchanges, PARTS)}
    return {
        key: {name: row[name] for name in row if name not in ("state", "over")} for key, row in found.items()
    }


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("model", MODELS)
def test_rows_of_closed_forms_are_those_of_the_program(model, stack):
    chosen = family(model, "h100-sxm-80gb x 24", stack, COUNT, seed=3)
    several = 0
    for plan in chosen.plans:
        program = lowered(chosen.long(plan), chosen.setting)
        expected = rows(program_exchanges(program, program_prices(program, chosen.setting)))
        found = group_exchanges(group_of(plan, chosen.setting))
        if found is None:
            assert program.parts.by_unit
            continue
        found_rows = rows(found)
        assert found_rows.keys() == expected.keys(), plan
        for key, row in expected.items():
            assert found_rows[key] == pytest.approx(row, rel=1e-4), (key, plan)
        several += len(expected)
    assert several


def test_exchanges_by_unit_are_those_of_lists():
    chosen = family("tied", "h100-sxm-80gb x 24", "megatron-core", 2, seed=1, schedules=WITH_UNITS)
    for plan in chosen.plans:
        assert group_exchanges(group_of(plan, chosen.setting)) is None
        program = lowered(chosen.long(plan), chosen.setting)
        found = rows(program_exchanges(program, program_prices(program, chosen.setting)))
        assert {state for state, _ in found} == {"parameter", "gradient"}
        for (state, over), row in found.items():
            kind = "GATHER" if state == "parameter" else "REDUCE"
            counts = Counter(a for actions in program.lists for a in actions if a.kind == kind).values()
            assert min(counts) <= row["exchanges_per_step"] <= max(counts)
            if over == "dp_shard" and state == "parameter":
                held = [
                    2 * program.held_elements(rank, "parameter") for rank in range(program.pipeline_ranks)
                ]
                assert any(row["encoded_bytes"] == pytest.approx(size, rel=1e-3) for size in held)
