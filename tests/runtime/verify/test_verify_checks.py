"""The checks of a proof by themselves: errors, copies, exchanges, what counts as equal."""

from dataclasses import replace
from math import inf, nan

import pytest
import torch
from covering_plans import Proven

from meshwright.runtime.comm.communicator import Traffic
from meshwright.runtime.state.shard_pieces import Piece
from meshwright.runtime.verify.case_result import Outcome
from meshwright.runtime.verify.expected_traffic import STEP, differing_traffic, expected_traffic
from meshwright.runtime.verify.tensor_errors import Error, joined, number_error, tensor_error
from meshwright.runtime.verify.verify_case import MASKED, VerifyCase, micro_batches


def tensors(**values):
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def test_an_error_is_relative_to_the_parameter_but_not_to_rounding():
    expected = tensors(large=[2.0, -1.0], small=[1e-9, 0.0])
    assert tensor_error(tensors(large=[2.0, -1.5], small=[1e-9, 0.0]), expected) == Error(0.25, "large")
    found = tensor_error(tensors(large=[2.0, -1.0], small=[2e-9, 0.0]), expected)
    assert found == Error(pytest.approx(1e-9 / (1e-3 * 2.0)), "small")


def test_what_is_no_number_is_infinitely_wrong():
    assert tensor_error(tensors(a=[nan]), tensors(a=[1.0])).value == inf
    assert number_error(nan, 1.0, "loss") == Error(inf, "loss")
    assert number_error(1.5, 1.0, "loss") == Error(0.5, "loss")


def piece(name, start, values, of=4):
    return Piece(name, (of,), (of,), (), start, torch.tensor(values, dtype=torch.float64))


def test_copies_must_have_the_same_bits():
    halves = [piece("w", 0, [1.0, 2.0]), piece("w", 2, [3.0, 4.0])]
    assert joined([*halves, *halves])[1] == []
    wholes, differing = joined([*halves, piece("w", 0, [1.0, 2.0 + 1e-15])])
    assert differing == ["w"]
    assert wholes["w"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert joined([*halves, piece("v", 0, [1.0, nan], of=2)]) == ({}, ["v"])


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"loss": Error(1e-8, "loss")}, "loss"),
        ({"gradient": Error(inf, "w")}, "gradients"),
        ({"norm": Error(1e-8, "gradient norm")}, "gradient norm"),
        ({"parameter": Error(1e-8, "w")}, "parameters"),
        ({"traffic": ("one is missing",)}, "bytes"),
        ({"copies": ("w",)}, "copies"),
        ({"failure": "rank 1 failed"}, "named error"),
    ],
)
def test_each_check_alone_says_no(changes, check):
    assert Outcome().equal
    outcome = replace(Outcome(), **changes)
    assert outcome.caught_by == (check,)
    assert not outcome.equal


def test_rounding_is_equal_and_more_than_rounding_is_doubtful():
    assert not Outcome(gradient=Error(5e-13, "w")).doubtful
    assert Outcome(gradient=Error(5e-12, "w")).doubtful
    assert Outcome(gradient=Error(5e-12, "w")).equal


PLANS = [
    Proven("gpt2", pp=2, dp_shard=2, sharding="zero3", gather="per-layer", recompute="full"),
    Proven("qwen3", pp=2, tp=2, sequence_parallel=True, schedule="zb-h1"),
]


def log_of(program, rank):
    return [
        Traffic(action, kind, axes, "it", size, (0, 1))
        for action, exchanges in expected_traffic(program, rank).items()
        for kind, axes, size in exchanges.elements()
    ]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.model)
def test_every_exchange_that_is_left_out_added_or_changed_is_named(plan):
    program, _ = plan.lowered()
    rank = program.parts.members(1)[0]
    log = log_of(program, rank)
    assert {entry.kind for entry in log} >= {"p2p", "all-gather"}
    assert differing_traffic(program, rank, log) == []
    for at, entry in enumerate(log):
        (missing,) = differing_traffic(program, rank, log[:at] + log[at + 1 :])
        assert "missing" in missing
        assert missing.startswith(entry.action)
        (more,) = differing_traffic(program, rank, [*log, entry])
        assert "too many" in more
        larger = replace(entry, logical_bytes=entry.logical_bytes + 1)
        assert len(differing_traffic(program, rank, [*log[:at], larger, *log[at + 1 :]])) == 2


def test_a_reduction_may_go_on_beside_later_passes():
    program, _ = PLANS[0].lowered()
    log = log_of(program, 0)
    at, later = next((i, entry) for i, entry in enumerate(log) if entry.action == STEP)
    assert differing_traffic(program, 0, [*log[:at], replace(later, action="0F0"), *log[at + 1 :]]) == []


def test_ranks_count_unlike_numbers_of_labels():
    trial = VerifyCase(*Proven("llama", dp_replicate=2, dp_shard=2, sharding="zero1").lowered())
    assert len(set(MASKED)) == len(MASKED)
    for batch in trial.batches():
        parts = [micro_batches(trial, batch, rank) for rank in range(4)]
        counted = [sum(int((m.labels != -100).sum()) for m in part) for part in parts]
        assert len(set(counted)) > 1
        assert {m.divisor for part in parts for m in part} == {sum(counted)} == {batch.counted}
