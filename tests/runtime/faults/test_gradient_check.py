from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist

from meshwright.program.model_states.state_elements import EXPERT_MESH
from meshwright.runtime.faults import gradient_check
from meshwright.runtime.faults.fault import FaultError
from meshwright.runtime.faults.gradient_check import KEPT, GradientCheck, norm_of


@dataclass
class Layout:
    mesh: Any = EXPERT_MESH


@dataclass
class UnitStub:
    name: str = "layers"
    layout: Any = None

    def __post_init__(self):
        self.layout = Layout()


UNIT = UnitStub()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(gradient_check, "GRACE_S", 0.05)


def check_of(ranks=1, loss=None, store=None, rank=0):
    losses = [loss]
    check = GradientCheck(rank, range(ranks), store or dist.HashStore(), lambda: losses[0])
    check.losses_now = losses
    return check


def taken(check, norms, first=0):
    for step, norm in enumerate(norms, first):
        check.begin_step(step)
        check(UNIT, (torch.tensor([norm, 0.0]),))
        check.end_step(0.0)


def kinds(check, norm, step=50):
    with pytest.raises(FaultError) as caught:
        taken(check, [norm], step)
    return [(of.kind, of.rank, of.step) for of in caught.value.faults]


def test_a_gradient_that_is_not_finite_names_the_rank():
    check = check_of()
    taken(check, [1.0] * 3)
    assert kinds(check, float("nan")) == [("nan", 0, 50)]


def test_a_gradient_far_above_those_before_names_the_rank_and_the_figures():
    check = check_of()
    taken(check, [1.0, 2.0, 1.5])
    with pytest.raises(
        FaultError, match=r"norm of its gradient of layers is 1.5e\+03, 750 times the largest"
    ):
        taken(check, [1500.0], 3)


def test_a_falling_norm_zeros_at_first_and_usual_jumps_are_no_faults():
    taken(check_of(ranks=2), [0.0, 0.0, 0.0, 5.0, *[100 * 0.8**n for n in range(60)], 0.01])


def test_a_loss_that_jumps_too_explains_the_gradient_to_all():
    store = dist.HashStore()
    holder, other = check_of(loss=2.0, store=store), check_of(store=store, rank=1)
    for check in (holder, other):
        taken(check, [1.0] * 5)
    holder.losses_now[0] = 1e6
    taken(holder, [1e9], 5)
    taken(other, [1e9], 5)
    holder.losses_now[0] = float("nan")
    taken(holder, [float("nan")], 6)
    taken(other, [float("nan")], 6)


def test_a_jump_of_half_of_the_others_is_no_fault_of_a_rank():
    store = dist.HashStore()
    check = check_of(ranks=4, store=store)
    taken(check, [1.0] * 5)
    store.set("suspect gradient 5 2", "")
    assert kinds(check, 1e5, 6) == [("corrupt", 0, 6)], "another step"
    assert kinds(check, 1e5, 5) == [("corrupt", 0, 5)], "one of three"
    store.set("suspect gradient 5 1", "")
    taken(check, [1e5], 5)


def test_reductions_of_a_step_have_histories_of_their_own():
    check = check_of()
    for step in range(KEPT + 4):
        check.begin_step(step)
        for norm in (1.0, 1e4):
            check(UNIT, (torch.tensor([norm]),))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_norm_is_that_of_all_parts_and_finite_where_they_are(dtype):
    parts = (
        torch.tensor([3.0, 0.0], dtype=dtype),
        torch.tensor([], dtype=dtype),
        torch.tensor([4.0], dtype=dtype),
    )
    assert norm_of(parts) == pytest.approx(5.0)
    assert norm_of(()) == 0.0
    large = torch.tensor([1e30, 1e30], dtype=dtype)
    assert norm_of((large,)) == pytest.approx(2**0.5 * 1e30, rel=0.01)
    assert not norm_of((large * float("inf"),)) < float("inf")
