"""Entries of expert_token in a Program: fewer rows travel over ep and reach experts, and tokens are hashed."""

import pytest
from lowered_programs import lowered, short_plan

from meshwright.model.operators.operator_types import Dispatch
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.expert_dispatch.dispatch_forms import LEGS, exchange_form
from meshwright.program.pass_items import Collective
from meshwright.program.synchronisation.token_hashing import (
    TokenHashing,
    hashing_flops_per_token,
    token_hashing,
)

TOKENS = Synchronisation.model_validate(
    {"state": "expert_token", "over": "ep", "compress": {"lsh": {"hashes": 4, "distinct": 0.25}}}
)
GRADIENTS = Synchronisation.model_validate(
    {"state": "gradient", "over": "dp_replicate", "compress": {"quantise": "int8"}}
)


def test_the_entry_of_tokens_is_found_by_its_number():
    assert token_hashing((GRADIENTS, TOKENS), ep=2) == TokenHashing(1, 4, 16, 0.25)
    assert token_hashing((GRADIENTS,), ep=2) is None
    assert token_hashing((TOKENS,), ep=1) is None


def test_a_token_is_projected_to_the_widths_of_all_hashes():
    assert hashing_flops_per_token(TokenHashing(0, 4, 16, 0.25), hidden=100) == 2 * 100 * 4 * 16


@pytest.mark.parametrize("kind", ["F", "I"])
def test_assumed_buckets_travel_over_ep(kind):
    exact, hashed = (_program(entries) for entries in ((), (TOKENS,)))
    for before, after in zip(_over_ep(exact, kind), _over_ep(hashed, kind), strict=True):
        assert after.logical_bytes == before.logical_bytes / 4
        assert (before.entry, before.routed, after.entry, after.routed) == (None, False, 0, True)
    (op,) = (op for op in exact.blocks[2].operators if isinstance(op, Dispatch))
    rows = [of.parts[0].shape.expert_rows(of.parts[0].mode, op.experts_per_token) for of in (exact, hashed)]
    assert rows[1] == rows[0] / 4
    assert sum(hashed.activation_bytes) < sum(exact.activation_bytes)
    forms = [exchange_form(of.parts[0].shape, of.stack) for of in (exact, hashed)]
    assert forms == ["flat", "bucketed"]
    assert LEGS["bucketed"] == (("ep",),)


def _program(entries):
    plan = short_plan("moe", {"dp_shard": 8, "ep": 4}, sharding="zero1", stack="meshwright")
    return lowered(plan.model_copy(update={"synchronise": entries})).program


def _over_ep(program, kind):
    items = [item for item in program.block_items[2, kind] if isinstance(item, Collective)]
    return [item for item in items if item.axes == ("ep",)]
