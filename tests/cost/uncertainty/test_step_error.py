"""The error of step times: its parts, its range, and what calibration does to it."""

from dataclasses import replace
from math import log

import pytest

from meshwright.cluster.cluster import CalibrationRuns
from meshwright.cluster.load import load_cluster
from meshwright.cost.uncertainty import step_error as room
from meshwright.cost.uncertainty.error_parts import ErrorParts, error_parts
from meshwright.cost.uncertainty.seen_runs import RunKind, Scale, SeenRuns
from meshwright.cost.uncertainty.step_error import PER_DOUBLING, pair_interval, step_error
from meshwright.model.load import load_model
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

ANY = RunKind("any", "any", "dense", "any")
OWN = RunKind("llm-foundry", "h100", "dense", "16-bit")
LEAST, MOST = Scale(8, 1, 400, 512), Scale(64, 8, 400, 16384)
PARTS = {
    "dense seen": ErrorParts(0.0, 0.06, 0.05),
    "dense unseen": ErrorParts(0.1, 0.08, 0.06, 1.4),
    "experts unseen": ErrorParts(0.2, 0.2, 0.1),
    "calibrated": ErrorParts(0.0, 0.04, 0.03),
}


@pytest.fixture(autouse=True)
def known_runs(monkeypatch):
    """64 H100 with llm-foundry are known, and nothing else."""
    runs = {
        ANY: SeenRuns(100, LEAST, MOST),
        OWN: SeenRuns(100, LEAST, MOST, 0.05),
        RunKind("any", "any", "experts", "any"): SeenRuns(10, LEAST, MOST),
    }
    monkeypatch.setattr(room, "seen_runs", lambda: runs)
    monkeypatch.setattr(
        room, "runs_of_any_stack", lambda s: runs[RunKind("any", "any", room.models(s), "any")]
    )
    monkeypatch.setattr(room, "error_parts", lambda: PARTS)


def setting(
    cluster="h100-sxm-80gb x 64", model="llama-3.1-8b", stack="llm-foundry", seq_len=4096, precision="bf16"
):
    workload = Workload(seq_len=seq_len, global_batch=64, precision=precision)
    return Setting(load_model(model), load_cluster(cluster), workload, load_stack(stack))


def test_a_seen_stack_has_the_error_of_its_own_runs_and_nothing_to_advise():
    found = step_error(setting())
    assert found.seen
    assert found.parts.sigma == pytest.approx(0.05)
    assert found.parts.stack == 0.0
    assert found.to_json()["advice"] is None
    assert "100 published runs of this stack" in found.origin


def test_few_runs_of_a_kind_have_the_error_of_left_out_groups(monkeypatch):
    few = {OWN: SeenRuns(5, LEAST, MOST), ANY: SeenRuns(5, LEAST, MOST)}
    monkeypatch.setattr(room, "seen_runs", lambda: few)
    assert step_error(setting()).parts == PARTS["dense seen"]


@pytest.mark.parametrize(
    "changed",
    [
        {"stack": "torchtitan"},
        {"cluster": "b200 x 64"},
        {"precision": "fp8"},
        {"model": "mixtral-8x7b"},
    ],
)
def test_another_stack_device_precision_or_kind_of_model_is_unseen(changed):
    found = step_error(setting(**changed))
    assert not found.seen
    assert found.to_json()["stack"] == "unseen"
    assert found.parts.stack > 0
    assert found.to_json()["advice"].startswith("No runs of")
    assert "Three runs of yours bring it to about ±7%" in found.to_json()["advice"]


def test_fp16_runs_say_as_much_as_bf16_ones():
    assert step_error(setting(precision="fp16")).seen


def test_the_interval_is_that_of_the_parts_together():
    found = step_error(setting(stack="torchtitan"))
    assert log(found.interval.high) == pytest.approx(1.4 * (0.1**2 + 0.08**2 + 0.06**2) ** 0.5)
    assert log(found.interval.low) == pytest.approx(-log(found.interval.high))


def test_a_larger_cluster_than_any_run_widens_the_groups_part_only():
    inside, outside = step_error(setting()), step_error(setting("h100-sxm-80gb x 512"))
    assert outside.parts.group == pytest.approx(
        (inside.parts.group**2 + (3 * PER_DOUBLING["devices"]) ** 2) ** 0.5
    )
    assert outside.parts.run == inside.parts.run
    assert outside.extrapolated == (
        "collectives over 512 devices: the runs behind the prediction have 8 to 64",
    )
    assert outside.to_json()["advice"].startswith("Extrapolated: collectives over 512 devices")


def test_runs_of_the_user_are_not_promised_to_help_where_they_would_not(monkeypatch):
    monkeypatch.setattr(room, "error_parts", lambda: PARTS | {"calibrated": ErrorParts(0.0, 0.4, 0.3)})
    found = step_error(setting("h100-sxm-80gb x 512"))
    assert found.advice.startswith("Extrapolated: ")
    assert "Three runs" not in found.advice


def test_a_longer_sequence_than_any_run_names_the_attention_kernel():
    found = step_error(setting(seq_len=2**20))
    (sentence,) = found.extrapolated
    assert sentence == (
        "the attention kernel at 1,048,576 tokens: the runs behind the prediction have 512 to 16,384"
    )
    assert found.parts.sigma > step_error(setting()).parts.sigma


def test_the_range_is_no_wider_inside_than_at_its_ends():
    sigmas = [step_error(setting(f"h100-sxm-80gb x {count}")).parts.sigma for count in (8, 16, 32, 64)]
    assert len(set(sigmas)) == 1
    beyond = [step_error(setting(f"h100-sxm-80gb x {count}")).parts.sigma for count in (64, 128, 1024, 8192)]
    assert beyond == sorted(set(beyond))


def test_network_cards_do_not_matter_inside_of_a_node():
    slow = load_cluster("h100-sxm-80gb x 8")
    pool = slow.pools[0]
    slow = replace(
        slow,
        pools=(replace(pool, node=replace(pool.node, nic_bytes_per_s=pool.node.nic_bytes_per_s / 16)),),
    )
    one, two = setting(), setting()
    alone = replace(one, cluster=slow)
    joined = replace(two, cluster=replace(slow, pools=(replace(slow.pools[0], count=16),)))
    assert not step_error(alone).extrapolated
    assert step_error(joined).extrapolated[0].startswith("network cards of 25 Gbit/s")


def test_calibration_takes_the_stacks_part_away_for_that_stack_only():
    cluster = replace(
        load_cluster("h100-sxm-80gb x 64"),
        calibrated=CalibrationRuns(stack="torchtitan", runs=3, sigma=0.07),
    )
    own = step_error(replace(setting(stack="torchtitan"), cluster=cluster))
    assert own.seen
    assert own.parts.stack == 0.0
    assert own.parts.sigma == pytest.approx(0.07)
    assert own.advice is None
    assert "3 runs of torchtitan on this cluster" in own.origin
    other = step_error(replace(setting(stack="deepspeed"), cluster=cluster))
    assert not other.seen
    assert other.parts == PARTS["dense unseen"]


def test_a_device_without_measured_kernels_widens_the_group_part():
    known, unmeasured = (
        setting(cluster=f"{device} x 64", stack="torchtitan") for device in ("b200", "mi300x")
    )
    assert step_error(unmeasured).parts.group > step_error(known).parts.group
    assert step_error(unmeasured).parts.stack == step_error(known).parts.stack


def test_the_ratio_of_two_plans_has_the_error_that_does_not_cancel(monkeypatch):
    parts = PARTS | {"pair seen": ErrorParts(0, 0, 0.03), "pair unseen": ErrorParts(0, 0, 0.05)}
    monkeypatch.setattr(room, "error_parts", lambda: parts)
    assert pair_interval(setting()) == parts["pair seen"].interval
    assert pair_interval(setting(stack="torchtitan")) == parts["pair unseen"].interval
    assert pair_interval(setting("h100-sxm-80gb x 8192")) == parts["pair seen"].interval


def test_the_packaged_tables_have_every_part(monkeypatch):
    monkeypatch.undo()
    names = {f"{of} {how}" for of in ("dense", "experts", "pair", "feature") for how in ("seen", "unseen")}
    assert set(error_parts()) == {*names, "calibrated"}
    for model in ("llama-3.1-8b", "mixtral-8x7b"):
        for stack in ("megatron-core", "generic", "torchtitan"):
            found = step_error(setting("b200 x 1024", model, stack)).interval
            assert found.low < 0.95 < 1.05 < found.high
    seen, unseen = (error_parts()[f"dense {how}"] for how in ("seen", "unseen"))
    assert seen.sigma < unseen.sigma
