"""Laws of one message's exchanges on a single island, whose mean is its own value."""

import pytest
import torch

from meshwright.plans.synchronisation.periods import Periods
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.synchronisation.stretch import Stretch
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum
from meshwright.runtime.synchronisation.group_legs import AloneTransport
from meshwright.runtime.synchronisation.message_exchange import MessageExchange

EVERY, ELEMENTS = 4, 6
STRETCHES = (Stretch("a", 4), Stretch("b", 2))
SGD = {"sgd": {"lr": 1.0}}


def island(padding=None, **keys):
    """The exchanges of an entry, and its periods; everything begins at zero."""
    entry = Synchronisation.model_validate(
        {"state": "parameter", "over": "dp_replicate", "every": EVERY, **keys}
    )
    sums = EncodedSum(entry.compress, STRETCHES, 1, torch.float64, torch.device("cpu"))
    anchor = torch.zeros(ELEMENTS, dtype=torch.float64) if entry.state == "parameter" else None
    outer = entry.outer_in_full
    moments = {key: torch.zeros(ELEMENTS, dtype=torch.float64) for key in (outer.moments if outer else ())}
    number = torch.zeros(1, dtype=torch.int64)
    made = MessageExchange(entry, sums, [4, 2], anchor, moments, number, padding)
    return made, Periods(entry)


def taken(of, periods, changes, local=None):
    """The local values and the anchor behind each step; step t adds ``changes[t - 1]``."""
    local = torch.zeros(ELEMENTS, dtype=torch.float64) if local is None else local
    found = []
    for step, change in enumerate(changes, 1):
        local = local + change
        if periods.begins(step):
            of.begin(local, [1.0], DrawKey(step=step), AloneTransport())
        empty = periods.ends_empty(step)
        if empty or periods.ends(step):
            local = of.end(local, empty=empty)
        found.append((local.clone(), None if of.anchor is None else of.anchor.clone()))
    return found


def drawn(steps, seed=0):
    """Whole numbers, whose sums are exact."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, (steps, ELEMENTS), generator=draw).double()


def phases(changes):
    """The sum of the changes of each phase."""
    return changes.view(-1, EVERY, ELEMENTS).sum(1)


@pytest.mark.parametrize("outer", [None, SGD])
def test_a_change_that_waits_a_period_counts_once(outer):
    changes = drawn(5 * EVERY)
    found = taken(*island(delay=EVERY, outer=outer), changes)
    for k in range(1, 6):
        _, anchor = found[k * EVERY - 1]
        assert torch.equal(anchor, phases(changes)[: k - 1].sum(0))


def test_a_step_between_boundaries_begins_at_the_anchor():
    changes = drawn(3 * EVERY)
    found = taken(*island(delay=EVERY, outer=SGD), changes)
    for k in (1, 2, 3):
        local, anchor = found[k * EVERY - 1]
        assert torch.equal(local, anchor)


@pytest.mark.parametrize("outer", [None, SGD, {"nesterov": {"lr": 0.5, "momentum": 0.5}}])
def test_fresh_values_of_one_island_leave_no_delay(outer):
    changes = drawn(5 * EVERY)
    eager = taken(*island(delay=EVERY, own="fresh", outer=outer), changes)
    diloco = taken(*island(outer=outer), changes)
    for (local, anchor), (other, its_anchor) in zip(eager, diloco, strict=True):
        assert torch.equal(local, other)
        assert torch.equal(anchor, its_anchor)


@pytest.mark.parametrize("merge", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("delay", [1, 2, 3])
def test_steps_of_a_shorter_delay_are_kept_by_what_merge_leaves(delay, merge):
    changes = drawn(EVERY + delay)
    local, anchor = taken(*island(delay=delay, merge=merge, outer=SGD), changes)[-1]
    before, during = changes[:EVERY].sum(0), changes[EVERY:].sum(0)
    assert torch.equal(anchor, before)
    assert torch.equal(local, before + (1 - merge) * during)


@pytest.mark.parametrize("delay", [0, 2, EVERY])
def test_moments_have_no_anchor_and_become_the_mean(delay):
    changes = drawn(2 * EVERY)
    of, periods = island(delay=delay, state="first_moment")
    found = taken(of, periods, changes)
    assert of.anchor is None
    local, _ = found[2 * EVERY - 1]
    at_begin = found[EVERY - 1][0]
    assert torch.equal(local, {0: changes.sum(0), EVERY: at_begin}.get(delay, local))
    if delay == 2:
        assert torch.equal(found[EVERY + 1][0], changes[:EVERY].sum(0))


def test_padding_stays_zero():
    padding = torch.tensor([False] * 5 + [True])
    changes = drawn(EVERY)
    changes[:, -1] = 0
    of, periods = island(padding, compress={"quantise": "int4"}, outer=SGD)
    local, anchor = taken(of, periods, changes)[-1]
    assert local[-1] == anchor[-1] == 0
    assert bool(anchor[:-1].any())


def test_results_may_be_waited_for_early():
    changes = drawn(2 * EVERY)
    (first, periods), (second, _) = island(delay=3, outer=SGD), island(delay=3, outer=SGD)
    whole = taken(first, periods, changes)
    local = torch.zeros(ELEMENTS, dtype=torch.float64)
    for step, change in enumerate(changes, 1):
        local = local + change
        if periods.begins(step):
            second.begin(local, [1.0], DrawKey(step=step), AloneTransport())
        second.settle()
        if periods.ends(step):
            local = second.end(local, empty=False)
        assert torch.equal(local, whole[step - 1][0])
