"""Experts on other ranks than the model has them: the same numbers, and files in the model's own order."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch
from covering_plans import Proven, told
from injected_fault import Fault
from tiny_models import tiny_config
from training_runs import small_run

from meshwright.runtime.kernels.moe.dispatch_combine import DispatchKernel
from meshwright.runtime.verify.case_result import DOUBTFUL
from meshwright.runtime.verify.run_case import run_case, run_case_with_clipping

ONE = (4, 2, 0, 5, 3, 1)
EACH = (ONE, (0, 2, 4, 1, 3, 5), (3, 4, 5, 0, 1, 2))
PLANS = (
    Proven("mixtral", dp_shard=2, ep=2, sharding="zero3", gather="per-layer", expert_order=EACH),
    Proven("gpt_oss", dp_replicate=4, ep=2, etp=2, expert_order=(ONE,)),
    Proven("mixtral", dp_replicate=3, ep=3, expert_order=EACH, recompute="full"),
    Proven("mixtral", dp_replicate=2, ep=2, expert_order=EACH, once=True),
    Proven("mixtral", dp_shard=6, ep=6, sharding="zero1", expert_order=EACH, once=True, node=2),
)
ORDERED = Proven("mixtral", dp_replicate=2, ep=2, expert_order=EACH)


def rows_go_as_the_model_numbers_experts():
    DispatchKernel._places = None


def rows_go_by_the_order_the_wrong_way_round():
    DispatchKernel._places = property(
        lambda self: torch.tensor(self.setting.part.expert_order(self.setting.layer))
    )


FAULTS = (
    Fault("rows go to the ranks that the model's order means", ORDERED, rows_go_as_the_model_numbers_experts),
    Fault("an order is taken for its inverse", ORDERED, rows_go_by_the_order_the_wrong_way_round),
)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", PLANS, ids=told)
def test_plans_with_an_order_compute_what_one_device_does(plan):
    outcome = run_case(plan.trial(), lambda what, part: None)
    assert outcome.caught_by == (), outcome
    assert outcome.worst.value < DOUBTFUL


def test_bytes_and_files_of_such_plans():
    outcome = run_case_with_clipping(ORDERED.trial(), lambda what, part: None)
    assert outcome.caught_by == (), outcome


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_wrong_order_is_seen(fault):
    assert fault.is_seen(run_case(fault.plan.trial(), lambda what, part: None, fault.put_in))


def test_readers_of_a_plan_agree_on_the_order():
    program, _ = ORDERED.lowered()
    assert program.parts.only.expert_orders == EACH
    plain = Proven("mixtral", dp_replicate=2, ep=2)
    assert program.signature() != plain.lowered()[0].signature()
    numbered = replace(plain, expert_order=(tuple(range(6)),))
    assert numbered.lowered()[0].signature() == plain.lowered()[0].signature()


def trained(folder, **order):
    layout = {"dp_shard": 2, "ep": 2, **order}
    run = small_run(folder, ranks=2, family="qwen3_moe", layout=layout, sharding="zero1")
    run.train("out", steps=3)
    return run


def test_a_run_trains_and_counts_the_same(tmp_path):
    plain = trained(tmp_path / "plain")
    count = tiny_config("qwen3_moe")["num_experts"]
    (tmp_path / "ordered").mkdir()
    (tmp_path / "ordered" / "order.csv").write_text(",".join(map(str, range(count)[::-1])), encoding="utf-8")
    ordered = trained(tmp_path / "ordered", expert_order="order.csv")
    losses = [[row["loss"] for row in run.metrics("out") if "loss" in row] for run in (plain, ordered)]
    assert losses[0]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    routing = [(run.path.parent / "out" / "routing.csv").read_text() for run in (plain, ordered)]
    assert routing[0] == routing[1]
