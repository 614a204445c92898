"""Shares of a vocabulary on forked ranks: what they keep, what they exchange, and what is said when a rank fails."""

import os
from time import sleep

import pytest

pytest.importorskip("torch")

from covering_plans import Proven
from local_plans import SEQ_LEN, run, small
from step_traffic import TRAFFIC, program_traffic
from tiny_models import tiny

from meshwright.cost.operators.pass_prices import CATEGORY
from meshwright.errors import RunError
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.pipeline_vocabulary.share_exchanges import Exchanges
from meshwright.runtime.pipeline_vocabulary.share_passes import ShareRun
from meshwright.runtime.verify.verify_case import VerifyCase, micro_batches
from meshwright.schedules.action import COMPUTE_KINDS, VOCABULARY_KINDS
from meshwright.schedules.vocabulary import FORMS


def spread(family="llama", form="vocab-1", schedule="1f1b", **keys):
    pipeline = {"schedule": {"name": schedule, "vocabulary": form}, "micro_batch": keys.pop("micro_batch", 1)}
    chunks = {"v-half": 2, "interleaved-1f1b": 2}.get(schedule, 1)
    return small(tiny(family, **keys.pop("sizes", {})), pipeline | {"virtual_stages": chunks}, **keys)


def kept(interpreter):
    """Watch an interpreter: (kind, stage or share, live bytes of that micro-batch) after every pass."""
    seen = []

    def hear(action, word):
        if word != "end":
            return
        if action.kind in COMPUTE_KINDS:
            at_work = interpreter.running.get((action.stage, action.micro_batch))
        elif action.kind in VOCABULARY_KINDS:
            at_work = interpreter.vocabulary.running.get(action.micro_batch)
        else:
            return
        seen.append((action.kind, action.stage, at_work.live_bytes() if at_work else 0))

    interpreter.hear = hear
    return seen


CASES = [
    spread(pp=2),
    spread(form="vocab-2", schedule="zb-h1", pp=2),
    spread("gpt2", "vocab-1", "zb-h1", pp=2, tp=2, sequence_parallel=True),
    spread("gemma2", "vocab-2", "1f1b", pp=2, tp=2, sequence_parallel=False, recompute="full"),
    spread("qwen3", "interlaced", pp=2, micro_batch=2, global_batch=16),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model.name} {case.program.vocabulary}")
def test_shares_and_stages_keep_what_the_ledger_says(case):
    """In bf16: X and the logits of a share from S to T, nothing before and nothing after."""
    *_, seen = run(case, "bf16", probe=kept)
    program = case.program
    after = {"F": program.activation_bytes, "S": program.activation_bytes, "I": program.weight_gradient_bytes}
    rows = [row for rank in seen for row in rank]
    assert {kind for kind, *_ in rows} >= {"F", *VOCABULARY_KINDS}
    for kind, stage, found in rows:
        assert found == (after[kind][stage] if kind in after else 0), (kind, stage)


def test_a_share_keeps_its_part_of_the_logits():
    program = spread(pp=2, micro_batch=2, global_batch=16).program
    tokens, hidden, words = 2 * SEQ_LEN, 48, 49
    assert program.activation_bytes[2:] == (2 * tokens * (hidden + words),) * 2


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("form", FORMS)
def test_every_rank_exchanges_the_bytes_that_the_program_counts(form):
    case = spread("qwen3", form, pp=2, tp=2, sequence_parallel=True)
    *_, logs, _ = run(case)
    found = dict.fromkeys(TRAFFIC, 0)
    for rank in (0, 2):
        for traffic in logs[rank]:
            name = "pp" if traffic.kind == "p2p" else CATEGORY[traffic.axes[-1]]
            found[name] += int(traffic.logical_bytes)
    assert found == program_traffic(case.program)


def failing(form, fault, timeout_s):
    """A step on two ranks, with a fault in rank 1."""
    plan = Proven("llama", pp=2, vocabulary=form)
    trial = VerifyCase(*plan.lowered())

    def work(place, store, tell):
        if place.rank == 1:
            fault()
        job = Job(trial.program, trial.model, "fp64", timeout_s=timeout_s, accelerated=False)
        with rank_of(job, place, store, trial.tensors()) as rank:
            rank.interpreter.step(micro_batches(trial, trial.batches()[0], place.rank))

    return run_locally(work, 2, 60.0, lambda what, part: None)


def dies():
    ShareRun.gradients = lambda self, softmax: os._exit(7)


def stays_away():
    original = Exchanges.enter

    def enter(self, action, part):
        if action.kind == "REDUCE_S":
            sleep(10.0)
        original(self, action, part)

    Exchanges.enter = enter


@pytest.mark.parametrize("form", ["vocab-1", "vocab-2"])
def test_a_rank_that_dies_between_exchanges_is_named_or_the_exchange_that_it_leaves(form):
    left = r"rank 0, \d+[A-Z]+(_[A-Z])?\d+: .* among ranks 0, 1: .*Connection closed by peer"
    with pytest.raises(RunError, match=f"rank 1 ended without a word|{left}"):
        failing(form, dies, 30.0)


def test_a_sum_in_which_a_rank_does_not_come_is_named_with_its_ranks():
    with pytest.raises(RunError, match=r"rank 0, 2REDUCE_S0: all-reduce of maximum among ranks 0, 1"):
        failing("vocab-1", stays_away, 1.5)
