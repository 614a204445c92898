"""The transform against its definition, and what a momentum keeps."""

from math import cos, pi, sqrt

import pytest
import torch
from codec_cases import Group

from meshwright.program.synchronisation.stretch import Stretch
from meshwright.runtime.synchronisation.codecs.dct import transform


@pytest.mark.parametrize("length", [1, 2, 7, 64])
def test_the_transform_is_the_orthonormal_dct(length):
    matrix = transform(length, torch.float64, torch.device("cpu"))
    torch.testing.assert_close(matrix @ matrix.mT, torch.eye(length, dtype=torch.float64), rtol=0, atol=1e-13)
    k, n = length - 1, length // 2
    scale = sqrt((1 if k == 0 else 2) / length)
    assert matrix[k, n].item() == pytest.approx(scale * cos(pi * (2 * n + 1) * k / (2 * length)), abs=1e-14)


def _exchanged(values, options, exchanges=1):
    group = Group.of(options, (Stretch("a", len(values)),), 1)
    sent = [group.exchange([[values]])[0][0] for _ in range(exchanges)]
    return sent, group.sums[0].states()["momentum.a"]


def test_a_cosine_of_each_chunk_is_sent_alone():
    basis = transform(8, torch.float64, torch.device("cpu"))
    values = torch.cat([3 * basis[2] + 0.1 * basis[5], -2 * basis[7], basis[1][:3]])
    (sent,), left = _exchanged(values, {"dct": {"chunk": 8, "keep": 1}})
    torch.testing.assert_close(sent[:8], 3 * basis[2], rtol=0, atol=1e-13)
    torch.testing.assert_close(left[:8], 0.1 * basis[5], rtol=0, atol=1e-13)
    torch.testing.assert_close(sent[8:16], -2 * basis[7], rtol=0, atol=1e-13)
    tail = transform(3, torch.float64, torch.device("cpu"))
    coefficients = tail @ values[16:]
    largest = coefficients.abs().argmax()
    torch.testing.assert_close(sent[16:], coefficients[largest] * tail[largest], rtol=0, atol=1e-13)


def test_the_momentum_decays_and_is_sent_later():
    basis = transform(4, torch.float64, torch.device("cpu"))
    values = 3 * basis[0] + 2 * basis[1]
    sent, left = _exchanged(values, {"dct": {"chunk": 4, "keep": 1, "momentum": 0.75}}, exchanges=2)
    torch.testing.assert_close(sent[1], (0.75 * 2 + 2) * basis[1], rtol=0, atol=1e-13)
    torch.testing.assert_close(left, 3 * basis[0], rtol=0, atol=1e-13)
