"""Codecs that send some elements as they are, or signs of all of them."""

import torch
from codec_cases import Group, drawn_values

from meshwright.program.synchronisation.stretch import Stretch


def _sent(values, options):
    group = Group.of(options, (Stretch("a", len(values)),), 1)
    return group.exchange([[values]])[0][0]


def test_top_k_sends_the_largest():
    values = torch.tensor([1.0, -5.0, 3.0, 0.5, -4.0], dtype=torch.float64)
    assert _sent(values, {"top_k": 0.5}).tolist() == [0, -5, 3, 0, -4]


def test_random_places_differ_by_rank():
    stretches = (Stretch("a", 1000),)
    group = Group.of({"random_k": 0.1, "error_feedback": True}, stretches, weights=[1.0, 1.0, 1.0])
    ones = [[torch.ones(1000, dtype=torch.float64)] for _ in range(3)]
    sent = group.exchange(ones)[0][0]
    assert sent.sum() == 300
    assert sent.max() > 1  # two ranks chose one place
    assert (sent > 0).sum() > 200  # and not all the same
    again = group.exchange([[one.zero_() for one in own] for own in ones])[0][0]
    assert again.sum() < 300  # what was sent is not sent again


def test_random_values_are_scaled_without_error_feedback():
    sent = _sent(torch.ones(10, dtype=torch.float64), {"random_k": 0.2})
    assert sorted(sent.tolist()) == [0] * 8 + [5, 5]


def test_ternary_sends_signs_of_the_largest_magnitude():
    (values,) = drawn_values(0, (Stretch("a", 200),), 1)[0]
    sent = _sent(values, {"ternary": {}})
    scale = values.abs().max()
    assert set(sent.tolist()) == {0.0, scale.item(), -scale.item()}
    assert torch.equal(sent.sign()[sent != 0], values.sign()[sent != 0])
    clipped = _sent(values, {"ternary": {"clip": 0.5}})
    assert clipped.abs().max().item() == 0.5 * values.std(correction=0).item()
    assert not _sent(torch.zeros(5, dtype=torch.float64), {"ternary": {}}).any()


def test_a_sketch_finds_a_few_large_elements():
    values = torch.zeros(1000, dtype=torch.float64)
    values[[3, 500, 999]] = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    sent = _sent(values, {"sketch": {"width": 0.2, "rows": 5}})
    torch.testing.assert_close(sent, values, rtol=0, atol=1e-12)


def test_a_sketch_of_a_sum_is_the_sum_of_sketches():
    stretches = (Stretch("a", 60),)
    values = drawn_values(0, stretches)
    options = {"sketch": {"width": 0.25, "rows": 4}}
    together = Group.of(options, stretches)
    mean = together.exact(values)[0]
    torch.testing.assert_close(together.exchange(values)[0][0], _sent(mean, options), rtol=0, atol=1e-12)


def test_cast_values_are_rounded():
    values = torch.tensor([1.0, 1 / 3, -1e-3], dtype=torch.float64)
    assert torch.equal(_sent(values, {"top_k": 1, "cast": "bf16"}), values.bfloat16().double())
    assert torch.equal(_sent(values, {"cast": "fp16"}), values.half().double())
