"""Plans that train adapters compute and exchange what one device does, and keep what the ledger says."""

from dataclasses import replace

import pytest
from adapter_plans import ADAPTER, OWN, PLANS, QUICK, adapted, blocks
from ledger_check import ledger_differences
from single_device_check import equal_to_one_device

EIGHT = (("rank", 8),)
"""Narrower rows of a grouped product are padded."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PLANS]
)
def test_adapters_equal_one_device(name):
    equal_to_one_device(PLANS[name])


KEPT = {
    "split backward": adapted(pp=2, schedule="zb-h1"),
    "tp": adapted(tp=2, sequence_parallel=True, schedule="zb-h1"),
    "zero3": adapted(dp_shard=2, sharding="zero3", gather="per-micro-batch", schedule="zb-h1"),
    "nf4": blocks(schedule="zb-h1"),
    "pairs of each replica": adapted(
        adapter=OWN, dp_shard=2, cp=2, sharding="zero3", gather="per-micro-batch", schedule="zb-h1"
    ),
    "experts": adapted("mixtral", EIGHT, recompute=("moe",), schedule="zb-h1"),
    **{
        f"recompute {recompute}": adapted(recompute=recompute, schedule="zb-h1")
        for recompute in ("full", ("layernorm",), ("mlp",), ("core_attn", "layernorm", "mlp"))
    },
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", KEPT)
def test_a_rank_holds_what_the_ledger_counts(name):
    assert ledger_differences(KEPT[name].trial()) == []


def test_the_scale_and_the_rank_reach_the_arithmetic():
    """A plan of another alpha has other gradients: its Program and its reference both read it."""
    program, _ = adapted().lowered()
    other, _ = replace(adapted(), adapter=(*ADAPTER[:1], ("alpha", 3.0))).lowered()
    assert program.signature() != other.signature()
