"""A time for every kind of operator: complete, bounded by the peak, and divided as the ranks divide the work."""

from dataclasses import replace

import pytest
from lattice_plans import ENCODER_MODELS, LINEAR_MODELS, MODELS, SEQ_LEN, STATE_SPACE_MODELS

from meshwright.cluster.load import load_cluster
from meshwright.cost.operators.kernel_and_collective_times import hardware_times_for
from meshwright.cost.operators.operator_times import RULES, Local, largest_share, operator_seconds
from meshwright.model.graph import attended_positions
from meshwright.model.operators import operator_types
from meshwright.model.operators.operator_types import (
    Attention,
    Combine,
    EnterTensor,
    ExpertLinear,
    ExpertLowRank,
    LeaveTensor,
    Linear,
    MergePatches,
    Operator,
    SharedValue,
)
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.plans.context_parallel import Context
from meshwright.program.local_shape import LocalShape, Mode
from meshwright.stack.load import load_stack
from meshwright.workload.adapter import Adapter
from meshwright.workload.encoder_lengths import EncoderLengths
from meshwright.workload.images import Images
from meshwright.workload.packed_documents import Documents

WITHOUT_ARITHMETIC = {MergePatches, SharedValue, EnterTensor, LeaveTensor, Combine}
ADAPTED = [with_adapters(graph, Adapter(rank=8)) for graph in MODELS.values()]
OPERATORS = {
    (type(op).__name__, op.name): op
    for graph in (*(MODELS | LINEAR_MODELS | STATE_SPACE_MODELS).values(), *ADAPTED)
    for block in graph.blocks
    for op in block.operators
}
OF_ENCODERS = {
    (type(op).__name__, op.name): op
    for graph in ENCODER_MODELS.values()
    for block in graph.blocks
    for op in block.operators
    if op.tokens == "encoder" or type(op) not in {type(other) for other in OPERATORS.values()}
}
STACKS = {name: load_stack(name) for name in ("megatron-core", "megatron-lm-2021", "deepspeed")}
SHAPE = LocalShape(micro_batch=2, seq_len=SEQ_LEN, cp=1, tp=1, ep=1, etp=1, vocab_multiple=128)


def local(stack="megatron-core", sequence_parallel=False, **degrees):
    return Local(
        hardware_times_for(load_cluster("h100-sxm-80gb x 8").pool, "bf16"),
        replace(SHAPE, **degrees),
        Mode(sequence_parallel=sequence_parallel),
        STACKS[stack],
    )


def test_every_kind_of_operator_has_a_rule_or_no_arithmetic():
    found = (getattr(operator_types, name) for name in dir(operator_types))
    kinds = {kind for kind in found if isinstance(kind, type) and issubclass(kind, Operator)} - {Operator}
    assert set(RULES) | WITHOUT_ARITHMETIC == kinds
    assert not set(RULES) & WITHOUT_ARITHMETIC
    assert {type(op) for op in (OPERATORS | OF_ENCODERS).values()} == kinds, (
        "the test's models use every kind"
    )


@pytest.mark.parametrize("op", OPERATORS.values(), ids=lambda op: op.name)
@pytest.mark.parametrize("stack", STACKS)
def test_an_operator_takes_time_forward_and_backward_unless_it_only_marks_a_boundary(op, stack):
    where = local(stack)
    forward = operator_seconds(op, "F", where)
    backward = operator_seconds(op, "I", where) + (operator_seconds(op, "W", where) if op.parameters else 0)
    if type(op) in WITHOUT_ARITHMETIC:
        assert forward == backward == 0
    else:
        assert forward > 0
        assert backward > 0
    assert operator_seconds(op, "R", where) == forward


@pytest.mark.parametrize("op", OPERATORS.values(), ids=lambda op: op.name)
@pytest.mark.parametrize("stack", STACKS)
def test_no_operator_computes_faster_than_the_peak(op, stack):
    where = local(stack, tp=2, etp=2)
    flops = op.flops_per_token(attended_positions(op, SEQ_LEN, causal=True)) * SHAPE.tokens / 2
    if isinstance(op, ExpertLinear | ExpertLowRank):
        flops *= 2  # etp: every rank of the group has all the group's tokens
    at_peak = flops / where.forms.peak_16bit_flops
    assert operator_seconds(op, "F", where) >= at_peak
    phases = {Linear: ("I", "W"), ExpertLinear: ("I", "W"), Attention: ("I",)}.get(type(op), ())
    backward = sum(operator_seconds(op, phase, where) for phase in phases)
    assert backward >= (2 * at_peak if phases else 0)


@pytest.mark.parametrize("op", OPERATORS.values(), ids=lambda op: op.name)
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("phase", ["F", "I"])
def test_more_tokens_take_more_time_and_context_parallelism_divides_it(op, stack, phase):
    once, twice = (operator_seconds(op, phase, local(stack, micro_batch=m)) for m in (2, 4))
    assert once < twice <= 2 * once or once == twice == 0
    assert operator_seconds(op, phase, local(stack, cp=2, micro_batch=4)) == pytest.approx(once)


@pytest.mark.parametrize("op", OPERATORS.values(), ids=lambda op: op.name)
def test_tensor_parallelism_cuts_what_lies_between_its_boundaries(op):
    whole, cut = (operator_seconds(op, "F", local(tp=tp, ep=1)) for tp in (1, 4))
    cut_with_sequence = operator_seconds(op, "F", local(tp=4, sequence_parallel=True))
    splits = getattr(op, "split", "column") != "whole"
    if type(op) in WITHOUT_ARITHMETIC:
        return
    if op.place == "tensor" and splits and type(op).__name__ != "Embedding":
        assert cut < whole
    if op.place == "sequence":
        assert cut == whole
        assert cut_with_sequence < whole


@pytest.mark.parametrize(
    "op", [op for op in OPERATORS.values() if op.place == "expert"], ids=lambda op: op.name
)
def test_expert_parallelism_changes_who_holds_an_expert_and_not_how_many_rows_there_are(op):
    alone, spread = (operator_seconds(op, "F", local(ep=ep)) for ep in (1, 4))
    if isinstance(op, ExpertLinear | ExpertLowRank):
        assert spread > 0
        assert spread != alone
    else:
        assert spread == alone


def test_stacks_with_fewer_fused_kernels_take_longer():
    norm, attention, loss = (
        OPERATORS[kind] for kind in (("Norm", "input_norm"), ("Attention", "attention"), ("Loss", "loss"))
    )
    fused, eager = local("megatron-core"), local("deepspeed")
    assert operator_seconds(norm, "F", eager) > operator_seconds(norm, "F", fused)
    flash, scores = local("megatron-core"), local("megatron-lm-2021")
    assert operator_seconds(attention, "F", scores) > operator_seconds(attention, "F", flash)
    whole, parallel = local("deepspeed", tp=4), local("megatron-core", tp=4)
    assert operator_seconds(loss, "F", whole) > 3 * operator_seconds(loss, "F", parallel)


def test_an_embeddings_gradient_passes_over_the_whole_table_and_its_look_up_does_not():
    op = next(op for op in OPERATORS.values() if isinstance(op, operator_types.Embedding))
    (table,) = op.parameters
    rows, width = table.shape
    large = replace(op, vocab=8 * rows, parameters=(replace(table, shape=(8 * rows, width)),))
    where = local()
    assert operator_seconds(large, "F", where) == operator_seconds(op, "F", where)
    longer = operator_seconds(large, "W", where) - operator_seconds(op, "W", where)
    added = 2 + 2 * where.stack.gradient_bytes  # read the new one, read and write their sum
    scale = where.forms.constants["gradient_accumulation"]
    assert longer == pytest.approx(7 * table.elements * where.forms.pass_(2 + scale * added))
    narrow = replace(where, stack=replace(where.stack, gradient_bytes=2))
    assert operator_seconds(op, "W", narrow) < operator_seconds(op, "W", where)


ATTENTION = next(op for op in OPERATORS.values() if isinstance(op, Attention))


@pytest.mark.parametrize("pieces", ["head-tail", "contiguous"])
@pytest.mark.parametrize("phase", ["F", "I"])
def test_attention_takes_as_long_as_documents_are(pieces, phase):
    def seconds(documents):
        where = local("megatron-core", cp=4, documents=documents)
        where = replace(where, mode=replace(where.mode, context=Context(pieces=pieces)))
        return operator_seconds(ATTENTION, phase, where)

    whole = seconds(None)
    assert seconds(Documents((SEQ_LEN,))) == pytest.approx(whole)
    found = [seconds(Documents((SEQ_LEN // cut,))) for cut in (2, 4, 16)]
    assert whole > found[0] > found[1] > found[2] > 0


def test_short_documents_are_even_over_contiguous_pieces():
    def share(documents, ring):
        where = local("megatron-core", cp=ring, documents=documents)
        where = replace(where, mode=replace(where.mode, context=Context(pieces="contiguous")))
        return largest_share(ATTENTION, where)

    for ring in (2, 8):
        assert share(Documents((SEQ_LEN,)), ring) == pytest.approx(2 - 1 / ring)
        assert 1 < share(Documents((SEQ_LEN // 2 + 1,)), ring) < 2 - 1 / ring
        assert share(Documents((SEQ_LEN // 64,)), ring) == pytest.approx(1)


@pytest.mark.parametrize("phase", ["F", "I", "W"])
@pytest.mark.parametrize("name", [key for key, op in OF_ENCODERS.items() if op.tokens == "encoder"], ids=str)
def test_an_operator_takes_as_long_over_the_tokens_of_an_encoder_as_over_text(name, phase):
    op, images = OF_ENCODERS[name], Images(per_sequence=2, tokens=640)
    read = EncoderLengths(images.patches, images)
    of_text = operator_seconds(
        replace(op, tokens="text", merged=1), phase, local(encoder=read, seq_len=images.patches // op.merged)
    )
    assert operator_seconds(op, phase, local(encoder=read)) == of_text


def test_attention_takes_less_time_within_windows_than_within_images():
    images = Images(per_sequence=2, tokens=640)
    whole = next(
        op
        for block in ENCODER_MODELS["vision-encoder"].blocks
        for op in block.operators
        if isinstance(op, Attention) and op.merge and op.side is None
    )
    windows, of_images, once = (
        operator_seconds(op, "F", local(encoder=EncoderLengths(images.patches, images)))
        for op in (replace(whole, side=8), whole, replace(whole, merge=0))
    )
    assert windows < of_images < once
