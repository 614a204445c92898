"""The states that a rank holds have the bytes that the ledger of memory counts."""

from dataclasses import replace

import pytest
from covering_plans import Proven
from ledger_check import ledger_differences
from state_type_plans import TYPES

WHOLE = Proven("llama")
CUT = Proven("llama", dp_replicate=2, tp=2)
OWNED = Proven("llama", dp_shard=2, sharding="zero1")


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("optimizer", [(("name", "sgd"), ("momentum", 0.9)), "sgd", "lion", "muon"], ids=str)
@pytest.mark.parametrize("plan", [WHOLE, CUT, OWNED], ids=["one rank", "tp", "zero1"])
def test_a_rank_holds_what_the_ledger_counts_of_other_optimizers(plan, optimizer):
    types = () if optimizer == "sgd" else (("first_moment", "bf16"),)
    assert ledger_differences(replace(plan, optimizer=optimizer, dtypes=types).trial()) == []


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("types", [(), (("master", "fp32"),)], ids=["parameters alone", "master copy"])
@pytest.mark.parametrize("plan", [WHOLE, CUT], ids=["one rank", "tp"])
def test_a_rank_without_backward_passes_holds_what_the_ledger_counts(plan, types):
    trial = replace(plan, optimizer="zo-sgd", dtypes=types).trial()
    assert ledger_differences(trial) == []
    parameters, states = (trial.program.held_bytes(0, kind) for kind in ("parameter", "optimizer"))
    assert states == 2 * parameters * bool(types)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("types", [(), *TYPES.values()], ids=["usual", *TYPES])
@pytest.mark.parametrize("plan", [WHOLE, CUT, OWNED], ids=["one rank", "tp", "zero1"])
def test_a_rank_holds_what_the_ledger_counts(plan, types):
    assert ledger_differences(replace(plan, dtypes=types).trial()) == []
