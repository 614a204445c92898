"""What an emulation stands on: its clock, its few processes for many ranks, its scale, its table of times."""

from math import prod

import pytest

pytest.importorskip("torch")

import torch
from emulated_programs import case, plain, sleeping_wall, started
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cost.operators.pass_prices import total
from meshwright.cost.operators.price_plans import program_prices
from meshwright.errors import UnsupportedError
from meshwright.program.model_states.state_elements import EXPERT_MESH
from meshwright.runtime.emulation.communicator import EmulatedCommunicator
from meshwright.runtime.emulation.emulation_result import Timed, merged
from meshwright.runtime.emulation.local_program import MOST_PROCESSES, PEER_AXES, local_program, stands_for
from meshwright.runtime.emulation.time_scale import EXCHANGE_S, PASS_S, chosen_scale, real_time_allowed
from meshwright.runtime.emulation.units_and_optimizer import emulated_plan
from meshwright.schedules.action import Action

EXPERTS = {"model": "mixtral-8x7b", "pp": 2, "dp_shard": 4, "ep": 2, "stack": "meshwright", "recomputed": 0}
DOUBLE = {"schedule": "dualpipe", "chunks": 2}


@pytest.mark.parametrize(
    "keys", [{"sharding": "zero1"}, {"sharding": "zero3", "gather": "per-layer"} | DOUBLE, DOUBLE], ids=str
)
def test_experts_have_units_of_their_own_as_in_a_run(keys):
    """Else their exchanges would wait for the dense ones of their stage."""
    found = case(**EXPERTS | keys)
    communicator = EmulatedCommunicator(
        0, found.program, torch.device("cpu"), clock=started(), times=found.times
    )
    plan = emulated_plan(found.program, communicator)
    for stage in found.program.stages_of(0):
        units = plan.units_of(stage.index)
        of_experts = [unit for unit in units if unit.layout.mesh is EXPERT_MESH]
        blocks = len(stage.blocks) if keys.get("gather") == "per-layer" else 1
        layers = len(stage.layers) if keys.get("gather") == "per-layer" else 1
        assert (len(units) - len(of_experts), len(of_experts)) == (blocks, layers)
        for kind in ("GATHER", "REDUCE"):
            items = found.program.collectives.get((stage.index, kind), ())
            own = [item for unit in units for item in unit.layout.over_own_mesh(items)]
            assert sorted(own, key=items.index) == list(items)
        mirrored = found.program.collectives.get((stage.index, "REDUCE_MIRRORED"), units)
        assert len(mirrored) == len(units)


@pytest.fixture
def wall(monkeypatch):
    return sleeping_wall(monkeypatch)


def test_a_clock_in_time_adds_up_what_it_is_told_and_nothing_else(wall):
    of_rank = started()
    for _ in range(20):
        of_rank.work(1.0)
    of_rank.wait_until(25.0)
    assert of_rank.work(2.0, at=24.0) == 25.0
    assert (of_rank.now, of_rank.late, of_rank.starts) == (27.0, 0, 21)


def test_work_takes_its_time_on_the_wall(wall):
    started(scale=0.01).work(5.0)
    assert wall.passed == pytest.approx(0.05)


def test_what_the_model_does_not_know_of_makes_the_next_start_late_and_stays(wall):
    of_rank = started(scale=0.01, slack_s=0.5)
    of_rank.work(1.0)
    wall.sleep(0.05)
    assert of_rank.begin() == pytest.approx(6.0)
    assert of_rank.late == 1
    of_rank.wait_until(7.0)
    assert (of_rank.now, of_rank.late) == (7.0, 1)


@pytest.fixture(scope="module")
def program():
    return case(256, sharding="zero1", pp=4, dp_shard=16, tp=8).program


@given(st.integers(4, MOST_PROCESSES))
@settings(max_examples=20, deadline=None)
def test_a_local_program_keeps_all_but_the_grid_and_fits_the_processes(processes):
    whole = case(256, sharding="zero1", pp=4, dp_shard=16, tp=8).program
    local = local_program(whole, processes)
    assert (local.lists, local.collectives, local.bodies) == (whole.lists, whole.collectives, whole.bodies)
    part = local.parts.only
    assert part.grid.ranks == part.expert_grid.ranks <= processes
    assert all(part.grid.sizes[axis] <= min(2, whole.parts.only.grid.sizes[axis]) for axis in PEER_AXES)
    assert part.grid.sizes["pp"] == 4


def test_processes_beyond_the_pipeline_make_tp_real_first(program):
    assert {n: local_program(program, n).parts.only.grid.sizes["tp"] for n in (4, 7, 8, 16)} == {
        4: 1,
        7: 1,
        8: 2,
        16: 2,
    }
    assert local_program(program, 16).parts.only.grid.sizes["dp_shard"] == 2
    assert "8 processes for 512 ranks" in stands_for(program, local_program(program, 8))


def test_experts_share_the_processes_of_their_stage():
    local = local_program(case(64, pp=2, dp_shard=4, tp=2).program, 8)
    assert prod(local.parts.only.expert_grid.sizes.values()) == 8


@pytest.mark.parametrize("processes", [0, 3, 17])
def test_too_few_and_too_many_processes_are_refused(program, processes):
    with pytest.raises(UnsupportedError, match="one process for each of 4 pipeline ranks"):
        local_program(program, processes)


def test_the_scale_lets_the_shortest_pass_and_exchange_last_long_enough():
    local, times = plain("zb-h1")
    scale = chosen_scale(local, times, real_time=True, load=9.0)
    assert scale * min(time.total_s for (_, kind), time in times.passes.items() if kind != "B") >= PASS_S
    assert scale * times.message_s >= EXCHANGE_S
    assert scale == pytest.approx(max(PASS_S / 1.0, EXCHANGE_S / times.message_s))
    assert chosen_scale(local, times, real_time=False, load=0.5) == scale
    assert chosen_scale(local, times, real_time=False, load=1.5) == 2 * scale


def test_asking_for_real_time_changes_nothing_here():
    import os

    before = os.sched_getscheduler(0)
    real_time_allowed()
    assert os.sched_getscheduler(0) == before


@pytest.mark.parametrize("gather", ["per-step", "per-micro-batch", "per-layer"])
def test_the_table_of_times_is_the_simulators(gather):
    found = case(16, pp=2, dp_shard=2, tp=2, sharding="zero3", gather=gather, stack="meshwright")
    prices, times = program_prices(found.program, found.setting), found.times
    for key, body in found.program.bodies.items():
        assert times.passes[key].total_s == pytest.approx(float(total(prices.body(body))), rel=1e-12)
    for key, items in found.program.collectives.items():
        assert sum(times.exchanges[key]) == pytest.approx(float(prices.collectives(items)), rel=1e-12)
    axes = {axes for time in times.passes.values() for axes, _ in time.exchanges}
    assert ("tp",) in axes
    assert (len(axes) > 1) == (gather != "per-step")


def test_operations_of_one_exchange_are_one_entry():
    reduce, step = Action("REDUCE", 0), Action("STEP")
    records = [Timed(step, 3, 4, "compute"), Timed(reduce, 2, 3, "dp"), Timed(reduce, 1, 2, "dp")]
    assert merged(records, {(0, "REDUCE"): ("first", "second")}) == (
        Timed(reduce, 1, 3, "dp"),
        Timed(step, 3, 4, "compute"),
    )
    assert len(merged(records, {})) == 3
