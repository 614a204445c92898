"""The closed form of an iteration against the played Program, on random legal replicas of zoo models."""

import pytest
from replica_draws import MODELS, PHASES, draw

from meshwright.cost.serving.iteration import iteration_seconds
from meshwright.program.serving.iteration_program import Iterations, Replica, iteration_program
from meshwright.program.serving.kv_bytes import sequence_cache_bytes
from meshwright.program.serving.weight_bytes import rank_weight_bytes
from meshwright.simulate.serving.iteration_player import play_iterations, steady_iteration

DRAWS, AT_ONCE = 600, 60


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("first", range(0, DRAWS, AT_ONCE))
def test_the_closed_form_is_within_3_percent_of_the_played_iteration(first):
    for seed in range(first, first + AT_ONCE):
        one = draw(seed)
        played = steady_iteration(one.cost, one.load).step_s
        assert float(iteration_seconds(one.cost, one.load)) == pytest.approx(played, rel=0.03), one


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("first", range(0, DRAWS, AT_ONCE))
def test_caches_have_the_bytes_of_the_closed_form_and_weights_all_but_a_byte_a_row(first):
    for seed in range(first, first + AT_ONCE):
        one = draw(seed)
        cost, block = one.cost, one.block_tokens
        replica = Replica(model=cost.model, degrees=cost.degrees, formats=cost.formats, block_tokens=block)
        program = iteration_program(replica, Iterations(load=one.load, caches=one.caches))
        ranks = range(program.pipeline_ranks)
        ((tokens, count),) = one.caches.items()
        closed = count * sequence_cache_bytes(cost.model, tokens, cost.degrees, cost.formats, block)
        assert max(program.held_bytes(rank, "cache") for rank in ranks) == closed, one
        weights = rank_weight_bytes(cost.model, cost.degrees, cost.formats)
        rounded = max(program.held_bytes(rank, "parameter") for rank in ranks) - weights
        assert 0 <= rounded < sum(row.repeat for row in program.states), one


def test_the_draws_have_all_models_phases_and_degrees():
    draws = [draw(seed) for seed in range(DRAWS)]
    assert {(one.model, one.phase) for one in draws} == {(m, p) for m in MODELS for p in PHASES}
    for degree in ("attention_dp", "tp", "pp", "cp", "ep", "etp"):
        assert sum(getattr(one.cost.degrees, degree) > 1 for one in draws) > DRAWS / 10, degree


def test_a_micro_batch_alone_takes_the_way_through_all_stages():
    one = next(one for one in map(draw, range(100)) if one.cost.degrees.pp == 4)
    replica = Replica(model=one.cost.model, degrees=one.cost.degrees, formats=one.cost.formats)
    program = iteration_program(replica, Iterations(load=one.load, micro_batches=1, count=2))
    simulation = play_iterations(program, one.cost, one.load)
    passes = [r for records in simulation.ranks for r in records if r.action.kind == "F"]
    sent = [r for records in simulation.ranks for r in records if r.action.kind == "SEND_F"]
    seconds = sum(r.end - r.start for r in (*passes, *sent))
    assert simulation.step_s == pytest.approx(seconds / 2, rel=1e-12)
    assert simulation.step_s <= float(iteration_seconds(one.cost, one.load)) * (1 + 1e-12)


def test_the_slowest_stage_paces_a_pipeline():
    one = next(one for one in map(draw, range(100)) if one.cost.degrees.pp == 8)
    simulation = steady_iteration(one.cost, one.load)
    longest = max(r.end - r.start for records in simulation.ranks for r in records if r.action.kind == "F")
    assert simulation.step_s >= 8 * longest * (1 - 1e-12)
