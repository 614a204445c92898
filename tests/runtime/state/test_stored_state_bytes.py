"""The states that a rank holds have the bytes that the ledger of memory counts."""

from dataclasses import replace

import pytest
from covering_plans import Proven
from state_type_plans import TYPES

from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.verify.verify_case import micro_batches

WHOLE = Proven("llama")
CUT = Proven("llama", dp_replicate=2, tp=2)
OWNED = Proven("llama", dp_shard=2, sharding="zero1")


def held(plan):
    """Bytes of a rank's parameters and optimizer states after a step in bf16, and those of its Program."""
    trial = plan.trial()

    def work(place, store, tell):
        with rank_of(
            Job(trial.program, trial.model, accelerated=False), place, store, trial.tensors()
        ) as rank:
            rank.interpreter.step(micro_batches(trial, trial.batches()[0], place.rank))
            units, optimizer = rank.plan.all_units, rank.interpreter.states.optimizer
            whole = [unit.whole.untyped_storage() for unit in units if unit.whole is not None]
            owned = {unit.owned.untyped_storage().data_ptr(): unit.owned.nbytes for unit in units}
            parameters = sum(storage.nbytes() for storage in whole)
            masters = sum(owned.values()) - sum(owned.get(storage.data_ptr(), 0) for storage in whole)
            moments = [s for of in optimizer.parts.values() for part in of for s in part.states.values()]
            states = masters + sum(state.held_bytes for state in moments)
            return (parameters, states) if place.rank == 0 else None

    return run_locally(work, plan.ranks, 120, lambda what, part: None), trial.program


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("optimizer", [(("name", "sgd"), ("momentum", 0.9)), "sgd", "lion", "muon"], ids=str)
@pytest.mark.parametrize("plan", [WHOLE, CUT, OWNED], ids=["one rank", "tp", "zero1"])
def test_a_rank_holds_what_the_ledger_counts_of_other_optimizers(plan, optimizer):
    types = () if optimizer == "sgd" else (("first_moment", "bf16"),)
    (parameters, states), program = held(replace(plan, optimizer=optimizer, dtypes=types))
    assert parameters == program.held_bytes(0, "parameter")
    assert states == program.held_bytes(0, "optimizer")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("types", [(), (("master", "fp32"),)], ids=["parameters alone", "master copy"])
@pytest.mark.parametrize("plan", [WHOLE, CUT], ids=["one rank", "tp"])
def test_a_rank_without_backward_passes_holds_what_the_ledger_counts(plan, types):
    (parameters, states), program = held(replace(plan, optimizer="zo-sgd", dtypes=types))
    assert parameters == program.held_bytes(0, "parameter")
    assert states == program.held_bytes(0, "optimizer") == 2 * parameters * bool(types)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("types", [(), *TYPES.values()], ids=["usual", *TYPES])
@pytest.mark.parametrize("plan", [WHOLE, CUT], ids=["one rank", "tp"])
def test_a_rank_holds_what_the_ledger_counts(plan, types):
    (parameters, states), program = held(replace(plan, dtypes=types))
    assert parameters == program.held_bytes(0, "parameter")
    assert states == program.held_bytes(0, "optimizer")
