"""Centroids of the reference: means of a rank's tokens with equal codes, with gradients of means."""

import pytest

pytest.importorskip("torch")

import torch

from meshwright.runtime.reference.expert_buckets import Bucketed

TOKENS = torch.tensor([[[1.0, 0.2], [2.0, 0.1], [-3.0, 0.0], [4.0, 0.3], [5.0, 0.5]]], dtype=torch.float64)
CHOSE = torch.tensor([[True, True, True, False, True]])


def bucketed(scopes):
    return Bucketed({"layers.0": torch.eye(2, dtype=torch.float64)[:, None]}, torch.tensor([scopes]))


def test_tokens_of_one_scope_with_equal_codes_share_their_mean():
    found, first = bucketed([0, 0, 0, 0, 1]).centroids("layers.0", TOKENS, CHOSE)
    torch.testing.assert_close(
        found[0], torch.tensor([[1.5, 0.15], [1.5, 0.15], [-3, 0], [4, 0.3], [5, 0.5]]).double()
    )
    assert first.tolist() == [[True, False, True, False, True]]


def test_gradients_are_those_of_means():
    x = TOKENS.clone().requires_grad_()
    found, _ = bucketed([0] * 5).centroids("layers.0", x, CHOSE)
    found[0, 1].sum().backward()
    third = [1 / 3, 1 / 3]
    torch.testing.assert_close(x.grad[0], torch.tensor([third, third, [0, 0], [0, 0], third]).double())
