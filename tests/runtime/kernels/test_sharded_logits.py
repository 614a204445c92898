"""Logits whose columns ranks have in parts: together they are the softmax and the gradient of all, for any cut."""

from types import SimpleNamespace

import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.model.operators.operator_types import Loss
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.kernels.vocabulary.sharded_logits import ShardedLogits
from meshwright.runtime.kernels.vocabulary.sharded_softmax import IGNORED, Softmax
from meshwright.runtime.precision import PRECISIONS

TOKENS, BATCH, HIDDEN = 5, 2, 3
DIVISOR = 7


def drawn(seed, vocab, cap, divisor):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(vocab, (TOKENS, BATCH), generator=draw)
    labels[0, 0] = IGNORED
    logits = torch.randn((TOKENS, BATCH, vocab), generator=draw, dtype=torch.float64) * 4
    table = torch.randn((vocab, HIDDEN), generator=draw, dtype=torch.float64)
    numerics = SimpleNamespace(logit_soft_cap=cap, logit_divisor=divisor)
    return logits, table, MicroBatch(labels, labels, DIVISOR), numerics


def kernels(parts, vocab, numerics):
    op = Loss(name="loss", place="tensor", vocab=vocab)
    setting = {"numerics": numerics, "precision": PRECISIONS["fp64"]}
    return [ShardedLogits(op, SimpleNamespace(vocabulary_part=part, **setting)) for part in range(parts)]


def cut(tensor, parts, dim):
    """Equal parts, the last ones padded."""
    width = -(-tensor.shape[dim] // parts)
    padded = torch.full(
        (*tensor.shape[:dim], parts * width, *tensor.shape[dim + 1 :]), 9.0, dtype=tensor.dtype
    )
    padded.narrow(dim, 0, tensor.shape[dim]).copy_(tensor)
    return [part.clone() for part in padded.split(width, dim)]


def exchanged(softmaxes):
    """What the ranks would bring together."""
    maximum = torch.stack([s.part[0] for s in softmaxes]).amax(0)
    for softmax in softmaxes:
        softmax.numbers["maximum"] = maximum
        softmax.take_sums()
    total = torch.stack([s.numbers["sums"] for s in softmaxes]).sum(0)
    for softmax in softmaxes:
        softmax.numbers["sums"] = total
    return softmaxes


def plain(logits, batch, numerics):
    """Loss and gradient by autograd."""
    logits = logits.clone().requires_grad_()
    bent = logits / numerics.logit_divisor
    if numerics.logit_soft_cap is not None:
        bent = torch.tanh(bent / numerics.logit_soft_cap) * numerics.logit_soft_cap
    loss = torch.nn.functional.cross_entropy(
        bent.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    (loss / DIVISOR).backward()
    return loss.detach() / DIVISOR, logits.grad


cases = st.tuples(
    st.integers(0, 99),
    st.integers(2, 13),
    st.integers(1, 9),
    st.sampled_from((None, 2.0)),
    st.sampled_from((1.0, 3.0)),
)


@given(cases)
def test_parts_are_the_loss_and_the_gradient_of_the_whole(case):
    seed, vocab, parts, cap, divisor = case
    logits, _, batch, numerics = drawn(seed, vocab, cap, divisor)
    found, own = kernels(parts, vocab, numerics), cut(logits, parts, 2)
    softmaxes = exchanged(
        [Softmax(batch, {"part": k.part(x, batch)}) for k, x in zip(found, own, strict=True)]
    )
    loss, gradient = plain(logits, batch, numerics)
    for kernel, x, softmax in zip(found, own, softmaxes, strict=True):
        kernel.differentiate(x, softmax)
        torch.testing.assert_close(softmax.loss, loss)
    torch.testing.assert_close(torch.cat(own, 2)[..., :vocab], gradient)
    assert not torch.cat(own, 2)[..., vocab:].any()


@given(cases)
def test_one_exchange_gives_the_same_as_two(case):
    seed, vocab, parts, cap, divisor = case
    logits, table, batch, numerics = drawn(seed, vocab, cap, divisor)
    found, own, rows = kernels(parts, vocab, numerics), cut(logits, parts, 2), cut(table, parts, 0)
    softmaxes = [Softmax(batch, {"part": k.part(x, batch)}) for k, x in zip(found, own, strict=True)]
    for kernel, x, softmax in zip(found, own, softmaxes, strict=True):
        kernel.soften(x, softmax)
    pulls = [x @ part for x, part in zip(own, rows, strict=True)]
    targets = [k.target_rows(part, s) for k, part, s in zip(found, rows, softmaxes, strict=True)]
    exchanged(softmaxes)
    _, gradient = plain(logits, batch, numerics)
    factors = [(s.scale * s.weight)[..., None] for s in softmaxes]
    summed = sum(p * f - t for p, f, t in zip(pulls, factors, targets, strict=True))
    torch.testing.assert_close(summed, gradient @ table)
    for kernel, x, softmax in zip(found, own, softmaxes, strict=True):
        kernel.complete(x, softmax)
    torch.testing.assert_close(torch.cat(own, 2)[..., :vocab], gradient)
