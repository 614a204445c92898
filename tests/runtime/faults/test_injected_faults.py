import errno

import pytest
import torch

from meshwright.runtime.faults.injected_faults import CORRUPTION, InjectedFaults, LinkRate
from meshwright.runtime.faults.injection import injections
from meshwright.runtime.faults.operation_history import OperationHistory
from meshwright.schedules.action import Action


def injected(*texts, rank=0):
    fired = []
    return InjectedFaults(injections(texts), rank, fired.append), fired


def begin(faults, step, flips=None):
    faults.before_step(step, lambda: flips.append(step))


def test_gradients_of_a_step_are_changed_in_all_units_and_in_no_other_step():
    faults, fired = injected(
        "spike:step=0", "corrupt:rank=0,step=2", "nan:rank=0,step=3", "nan:rank=1,step=1"
    )
    changed = []
    for step in range(5):
        begin(faults, step)
        parts = [torch.ones(2), torch.ones(2)]
        for part in parts:
            faults.change_gradients([torch.ones(0), part])
        changed.append([part[0].item() for part in parts])
    assert changed[:3] == [[1, 1], [1, 1], [CORRUPTION, CORRUPTION]]
    assert torch.tensor(changed[3]).isnan().all()
    assert changed[4] == [1, 1]
    assert fired == [1, 2]


def test_a_bit_is_flipped_at_the_begin_of_its_step_by_its_rank():
    faults, fired = injected("diverge:rank=0,step=2", "diverge:rank=1,step=3")
    flips = []
    for step in range(5):
        begin(faults, step, flips)
    assert (flips, fired) == ([2], [0])


def test_the_first_file_of_the_step_or_a_later_one_cannot_be_written():
    faults, fired = injected("full:rank=0,step=2")
    faults.before_write(2)
    with pytest.raises(OSError, match="No space left") as caught:
        faults.before_write(5)
    assert caught.value.errno == errno.ENOSPC
    faults.before_write(6)
    assert fired == [0]


def test_a_spike_is_seen_by_all_ranks_in_one_step():
    for rank, tells in ((0, [0]), (1, [])):
        faults, fired = injected("spike:step=2,factor=4", rank=rank)
        assert [faults.loss(step, 1.5) for step in (1, 2, 2, 3)] == [1.5, 6.0, 1.5, 1.5]
        assert fired == tells


def test_a_slow_rank_sleeps_behind_passes_as_its_factor_says(monkeypatch):
    slept, clock = [], iter([10.0, 13.0])
    monkeypatch.setattr("meshwright.runtime.faults.injected_faults.sleep", slept.append)
    monkeypatch.setattr("meshwright.runtime.faults.injected_faults.monotonic", lambda: next(clock))
    faults, fired = injected("slow:rank=0,step=1,factor=5")
    for step, kind in ((0, "F"), (1, "SEND_F"), (1, "F")):
        begin(faults, step)
        faults.history.waited_s = 7.0
        faults.hear(Action(kind, 0, 0), "begin")
        faults.history.waited_s = 8.0
        faults.hear(Action(kind, 0, 0), "end")
    assert slept == [4 * (3.0 - 1.0)], "of three seconds of the pass, one was spent waiting for other ranks"
    assert fired == [0]


def test_a_slow_link_delays_what_both_ends_take_part_in_at_the_receiver(monkeypatch):
    slept = []
    monkeypatch.setattr("meshwright.runtime.faults.injected_faults.sleep", slept.append)
    faults, fired = injected("link:rank=2,peer=0,step=1,factor=3")
    faults.rates[0, 2] = LinkRate(1.0, 10.0)
    history = OperationHistory()
    faults.delay_operations(history)
    for step in (0, 1):
        begin(faults, step)
        for ranks, receives in (((0, 1), True), ((0, 2), False), ((2, 0), True), ((0, 1, 2, 3), True)):
            operation = history.begin(("key",), "what", 20.0, ranks, receives=receives)
            history.wait(operation, lambda: None)
    assert slept == [2 * (1.0 + 2.0)] * 2
    assert fired == [0]
