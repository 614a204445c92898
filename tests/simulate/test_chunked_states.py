"""Chunks are on the device or on the host, all of them; where all fit nothing moves."""

import pytest

from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve
from meshwright.program.lowering.lower_plan import lower
from meshwright.simulate.chunked_states import placed, with_copies
from meshwright.verbs.predict.predict_plan import predicted

PLAN = {
    "plan": 1,
    "model": "llama-3.1-8b",
    "cluster": "a100-sxm-40gb x 8",
    "workload": {"seq_len": 2048, "global_batch": 8},
    "stack": "generic",
    "layout": {"dp_shard": 8},
    "sharding": "zero3",
    "gather": "per-layer",
    "recompute": "full",
}
CHUNKS = {"offload": {"manager": "chunks"}}


def resolved(**changes):
    return resolve(ShortPlan.model_validate(PLAN | changes))


def placement(**changes):
    plan = resolved(**changes)
    long, setting = plan.long.model_copy(update={"offload": None}), plan.setting
    program = lower(long, setting.model, setting.cluster, setting.workload, setting.stack)
    return placed(program, plan.long, setting), program


def test_where_all_chunks_fit_nothing_moves_and_the_step_is_that_without_chunks():
    with_chunks, without = predicted(resolved(**CHUNKS)), predicted(resolved())
    assert with_chunks.step_time_s == pytest.approx(without.step_time_s, rel=0.03)
    assert "host" not in with_chunks.memory_bytes
    found, program = placement(**CHUNKS)
    assert with_copies(program, found) is program
    assert found.ledger["gradients"] == 0


@pytest.mark.parametrize("cluster", ["a100-sxm-40gb x 1", "v100-sxm2-32gb x 1"])
def test_device_and_host_hold_all_chunks_together(cluster):
    precision = "fp16" if cluster.startswith("v100") else "bf16"
    work = {"seq_len": 2048, "global_batch": 1, "precision": precision}
    changes = {
        **CHUNKS,
        "cluster": cluster,
        "layout": {},
        "sharding": "none",
        "gather": None,
        "workload": work,
    }
    found, program = placement(**changes)
    layout = found.layout
    chunks = layout.elements * layout.count * (2 + program.stack.optimizer_bytes)
    assert found.ledger["parameters"] + found.ledger["optimizer"] + found.host_bytes == chunks
    assert found.host_bytes > 0
    assert layout.waste < 0.1
    report = predicted(resolved(**changes))
    assert report.fits
    assert report.memory_bytes["host"] == found.host_bytes


def test_parameters_that_do_not_fit_are_fetched_by_both_passes():
    work = {"seq_len": 2048, "global_batch": 1}
    changes = {"model": "llama-2-70b", "cluster": "a100-sxm-40gb x 1", "layout": {}, "sharding": "none"}
    found, program = placement(**CHUNKS, **changes, gather=None, workload=work)
    missing = found.layout.count - found.parameters
    assert missing > 0
    assert found.optimizer == 0
    assert found.fetched == (missing, missing)
    copies = with_copies(program, found).state_copies[0, "F"]
    assert copies.back_bytes == copies.out_bytes == missing * 2 * found.layout.elements
