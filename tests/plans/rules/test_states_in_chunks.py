"""Chunks that no step could walk are refused by name, with all other problems."""

import pytest

from meshwright.errors import InputError
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve

PLAN = {
    "plan": 1,
    "model": "llama-3.1-8b",
    "cluster": "a100-sxm-40gb x 8",
    "workload": {"seq_len": 2048, "global_batch": 8},
    "stack": "generic",
    "layout": {"dp_shard": 8},
    "sharding": "zero3",
    "gather": "per-layer",
    "offload": {"manager": "chunks", "chunk_mib": "auto"},
}


def problems(**changes):
    try:
        resolve(ShortPlan.model_validate(PLAN | changes), stack_binds=True)
    except InputError as error:
        return [(problem.field, problem.rule) for problem in error.problems]
    return []


CASES = [
    ({"offload": {"chunk_mib": 64}}, "offload.chunk_mib", "no manager keeps states in chunks"),
    ({"offload": {"manager": "chunks", "optimizer": "all"}}, "offload.optimizer", "chunks hold all states"),
    ({"offload": {"manager": "chunks", "activations": "all"}}, "offload.activations", "activations stay"),
    ({"layout": {"pp": 2, "dp_shard": 4}}, "layout.pp", "the order of one rank's passes"),
    ({"workload": {"seq_len": 2048, "global_batch": 64}}, "workload.global_batch", "one micro-batch, not 8"),
    ({"sharding": "zero2", "gather": None}, "sharding", "whole chunks"),
    ({"gather": "per-step"}, "gather", "gathered as layers need them"),
    ({"dtypes": {"gradient": "fp32"}}, "dtypes.gradient", "16-bit parameters"),
    ({"stack": "megatron-core"}, "offload.manager", "keeps no states in chunks"),
    ({"stack": "deepspeed"}, "offload.manager", "keeps no states in chunks"),
    ({"model": "mixtral-8x7b"}, "offload.manager", "no known order"),
]


@pytest.mark.parametrize(("changes", "field", "rule"), CASES, ids=lambda value: str(value)[:40])
def test_chunks_are_refused_with_their_rule(changes, field, rule):
    assert any(of == field and rule in text for of, text in problems(**changes)), problems(**changes)


def test_a_plan_of_one_node_is_legal():
    assert problems() == []
