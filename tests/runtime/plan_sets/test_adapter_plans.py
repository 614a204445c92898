"""Plans that train adapters compute and exchange what one device does, and keep what the ledger says."""

from dataclasses import replace

import pytest
from adapter_plans import ADAPTER, OWN, PLANS, QUICK, adapted, blocks
from single_device_check import equal_to_one_device

from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.state.frozen_unit import FrozenUnit
from meshwright.runtime.verify.verify_case import micro_batches

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
    """Tensors after F and I, parameters, and optimizer states, which only adapters have."""
    trial = KEPT[name].trial()
    program = trial.program

    def work(place, store, tell):
        with rank_of(Job(program, trial.model, accelerated=False), place, store, trial.tensors()) as rank:
            interpreter, kept = rank.interpreter, []

            def hear(action, word):
                run = interpreter.running.get((action.stage, action.micro_batch))
                if word == "end" and action.kind in ("F", "I") and run:
                    kept.append((action.kind, action.stage, run.live_bytes()))

            interpreter.hear = hear
            interpreter.step(micro_batches(trial, trial.batches()[0], place.rank))
            frozen = [unit for unit in rank.plan.all_units if isinstance(unit, FrozenUnit)]
            states = interpreter.states.optimizer.parts.values()
            moments = [state for of in states for part in of for state in part.states.values()]
            masters = sum(unit.owned.nbytes for unit in rank.plan.trained_units)
            sizes = sum(unit.owned.nbytes for unit in frozen), masters + sum(s.held_bytes for s in moments)
            return (kept, *sizes) if place.rank == 0 else None

    kept, frozen, optimizer = run_locally(work, KEPT[name].ranks, 120, lambda what, part: None)
    for kind, stage, found in kept:
        assert found == (program.activation_bytes if kind == "F" else program.weight_gradient_bytes)[stage]
    assert frozen == sum(e.total_bytes for e in program.states if e.name.endswith(".base") and e.stage == 0)
    assert optimizer == program.held_bytes(0, "optimizer")


def test_the_scale_and_the_rank_reach_the_arithmetic():
    """A plan of another alpha has other gradients: its Program and its reference both read it."""
    program, _ = adapted().lowered()
    other, _ = replace(adapted(), adapter=(*ADAPTER[:1], ("alpha", 3.0))).lowered()
    assert program.signature() != other.signature()
