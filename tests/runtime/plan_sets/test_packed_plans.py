"""Documents that share sequences and do not attend to each other, wherever the borders of ranks fall."""

from dataclasses import replace

import pytest
import torch
from context_combinations import FORMS
from covering_plans import SEQ_LEN, told
from packed_plans import ALONE, PACKED, RING, composed, with_every_part
from single_device_check import equal_to_one_device

from meshwright.program.context_parallel.positions_and_masks import ring_stretches
from meshwright.runtime.kernels.attention import scaled_dot_product


def named(plan):
    return f"{plan.model} {told(plan)}"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("plan", [*ALONE, *composed()], ids=named)
def test_packed_sequences_are_computed_as_on_one_device(plan):
    equal_to_one_device(plan)


@pytest.mark.slow
@pytest.mark.parametrize("plan", with_every_part(), ids=named)
def test_packed_sequences_with_every_two_other_parts(plan):
    equal_to_one_device(plan)


def without_kernels_that_tell_their_statistics():
    scaled_dot_product._has_kernel = lambda q, of: False


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "plan",
    [PACKED, replace(PACKED, cp=2, context="ulysses", model="gpt_oss"), replace(RING, model="mistral")],
    ids=told,
)
def test_packed_sequences_on_accelerators_whose_kernels_do_not_tell_their_statistics(plan):
    equal_to_one_device(plan, without_kernels_that_tell_their_statistics)


def test_every_form_is_tried_alone_and_with_something_else():
    for plans in (ALONE, composed()):
        assert {str(plan.context).split(",")[0] for plan in plans} >= {*FORMS} - {"ulysses"}


def test_documents_of_all_kinds_are_tried():
    begins = torch.cat([batch.begins for batch in RING.trial().batches()])
    assert (begins == 0).all(1).any(), "one document"
    lengths = [row.unique(return_counts=True)[1] for row in begins]
    piece = SEQ_LEN // (2 * RING.cp)
    assert any((row < piece).any() for row in lengths), "shorter than a piece"
    assert len({tuple(row.tolist()) for row in begins}) > 2, "at other places in each sequence"
    cuts = {
        stop for place in range(RING.cp) for _, stop in ring_stretches(SEQ_LEN, RING.cp, "head-tail", place)
    }
    crossed = [cut for cut in cuts if cut < SEQ_LEN and (begins[:, cut] < cut).any()]
    assert crossed, "over the borders of ranks"


def test_sequences_are_packed_where_the_workload_says_so():
    assert all(batch.begins is not None for batch in PACKED.trial().batches())
