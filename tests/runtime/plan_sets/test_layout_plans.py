"""Plans whose layers have different layouts compute, exchange and hold what one process and the ledger say."""

import pytest
from layout_plans import SEED, chosen_levels, every_pair, layout_plans, pairs_of, plan_of
from ledger_check import ledger_differences

from meshwright.program.checks.validate_program import validate
from meshwright.program.rank_units.unit_layout import UnitLayout
from meshwright.runtime.batch import rank_micro_batches
from meshwright.runtime.comm.reshard_exchange import Piece, RankExchange
from meshwright.runtime.kernels.vocabulary.sharded_softmax import IGNORED
from meshwright.runtime.verify.run_case import no_fault, run_case
from meshwright.runtime.verify.run_state_case import run_case_and_states

PLANS = dict(layout_plans())
QUICK = 3
EXAMPLE = plan_of(
    {
        "first": "ring",
        "second": "tp of sequences",
        "first states": "zero3 by layer",
        "second states": "zero1",
        "where": "inside stages",
        "schedule": "1f1b",
        "model": "llama",
        "recompute": "none",
        "micro-batch": "1",
        "batch": "even shares",
        "shards": "even shards",
    }
)


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, marks=() if at < QUICK else pytest.mark.slow) for at, words in enumerate(PLANS)],
)
def test_layers_of_different_layouts_compute_what_one_process_computes(words):
    trial = PLANS[words].trial()
    assert validate(trial.program, trial.model) == []
    outcome = run_case_and_states(trial, lambda what, part: None)
    assert outcome.equal, outcome.to_json()
    assert not outcome.doubtful, outcome.to_json()
    assert ledger_differences(trial) == []


def test_there_are_plans_enough():
    assert len(PLANS) >= 40, SEED
    assert {plan.ranks for plan in PLANS.values()} == {4, 8}


def test_every_two_levels_that_a_plan_can_have_meet_in_one():
    assert set(every_pair()) - set().union(*map(pairs_of, chosen_levels())) == set()


def sequences_are_mixed_up():
    original = Piece.put
    Piece.put = lambda self, value, piece: original(self, value, piece.flip(1))


def positions_are_mixed_up():
    original = Piece.of
    Piece.of = lambda self, value: original(self, value).flip(0).contiguous()


def what_a_rank_keeps_is_lost():
    original = RankExchange.assemble

    def assemble(self, pieces, like, old=None):
        return original(self, pieces, like, None if old is None else old.zero_())

    RankExchange.assemble = assemble


@pytest.fixture(scope="module")
def changing():
    """A plan that changes its layout, in which nothing is caught."""
    trial = EXAMPLE.trial()
    assert run_case(trial, lambda what, part: None, no_fault).caught_by == ()
    return trial


@pytest.mark.parametrize("fault", [positions_are_mixed_up, what_a_rank_keeps_is_lost])
def test_a_wrong_change_of_layout_is_caught(changing, fault):
    assert run_case(changing, lambda what, part: None, fault).caught_by != ()


def every_replica_counts_its_own_labels():
    original = rank_micro_batches.MicroBatch

    def mean_of_means(tokens, labels, divisor, packing=None, **others):
        return original(tokens, labels, 4 * max(1, int((labels != IGNORED).sum())), packing, **others)

    rank_micro_batches.MicroBatch = mean_of_means


def shards_lie_at_places_of_even_ones():
    UnitLayout.row = lambda self, part: slice(
        part * self.size // self.parts, (part + 1) * self.size // self.parts
    )


FAULTS = {
    "one layout, zero3 by layer, shares 1 3 2 2": every_replica_counts_its_own_labels,
    "one layout, zero2, ring, shares 3 1, shards 1 4 2 1": shards_lie_at_places_of_even_ones,
}


@pytest.mark.parametrize("words", FAULTS)
def test_wrong_shares_are_caught(words):
    trial = PLANS[words].trial()
    assert run_case(trial, lambda what, part: None, no_fault).caught_by == ()
    assert run_case(trial, lambda what, part: None, FAULTS[words]).caught_by != ()


@pytest.mark.slow
def test_sequences_in_another_order_are_caught():
    (plan,) = [plan for words, plan in layout_plans() if ", 2, " in words][:1]
    assert run_case(plan.trial(), lambda what, part: None, sequences_are_mixed_up).caught_by != ()
