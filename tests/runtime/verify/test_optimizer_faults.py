"""A proof sees matrices that are exchanged or scaled otherwise, and traffic that is not the Program's."""

import pytest
import torch
from covering_plans import Proven

from meshwright.runtime.state import muon_update
from meshwright.runtime.state.muon_update import MuonUpdate
from meshwright.runtime.verify.run_state_case import run_case_and_states


def muon(tensor, **of):
    return Proven("llama", layers=2, optimizer=(("name", "muon"), ("tensor", tensor)), **of)


def grams_not_summed(patch):
    patch.setattr(MuonUpdate, "_summed", lambda self, item, gram: gram)


def blocks_in_another_order(patch):
    cat = torch.cat
    patch.setattr(muon_update.torch, "cat", lambda parts, dim=0: cat(list(reversed(parts)), dim))


def another_scale(patch):
    patch.setattr(muon_update, "scale_factor", lambda scale, outputs, inputs: 0.2 * max(outputs, inputs))


def parts_of_another_rank(patch):
    patch.setattr(
        MuonUpdate, "_from_all_shards", lambda self, own: [own.new_ones(m.shape) for m in self.matrices]
    )


FAULTS = (
    (grams_not_summed, muon("distributed", tp=2), {"parameters", "bytes"}),
    (blocks_in_another_order, muon("duplicated", tp=2), {"parameters"}),
    (another_scale, muon("blockwise"), {"parameters"}),
    (parts_of_another_rank, muon("blockwise", dp_shard=2, sharding="zero3"), {"parameters", "bytes"}),
)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("fault", "plan", "seen"), FAULTS, ids=lambda fault: getattr(fault, "__name__", ""))
def test_a_faulty_step_is_caught(fault, plan, seen, monkeypatch):
    fault(monkeypatch)
    outcome = run_case_and_states(plan.trial(), lambda what, part: None)
    assert seen <= set(outcome.caught_by), outcome.to_json()


def test_blocks_by_themselves_compute_other_numbers_than_whole_matrices():
    by_block, whole = (
        run_case_and_states(muon(mode, tp=2).trial(), lambda what, part: None) for mode in MODES
    )
    assert by_block.equal
    assert whole.equal
    assert abs(by_block.norms[-1] - whole.norms[-1]) > 1e-6


MODES = ("blockwise", "duplicated")
