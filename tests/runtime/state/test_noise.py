"""Noise of parameters: a function of seed, step, name and element, normal, and the same in any block."""

import numpy as np
import pytest
import torch

from meshwright.runtime.state.noise import GOLDEN, noise, noise_key, random_bits

KEY = noise_key(3, 7, "layers.0.mlp.up_proj.weight")
MANY = torch.arange(200_000)


def splitmix64(key, elements):
    """The reference: SplitMix64 of a key and a counter, in unsigned arithmetic."""
    x = (np.asarray(elements, dtype=np.uint64) + np.uint64(1)) * np.uint64(GOLDEN) + np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def test_bits_are_those_of_splitmix64():
    found = random_bits(KEY, MANY).numpy().view(np.uint64)
    assert (found == splitmix64(KEY, MANY.numpy())).all()


def test_noise_is_box_and_mullers():
    bits = splitmix64(KEY, MANY.numpy())
    u = ((bits >> np.uint64(32)).astype(np.float64) + 1) / 2**32
    v = (bits & np.uint64(2**32 - 1)).astype(np.float64) / 2**32
    exact = np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)
    found = noise(KEY, MANY)
    assert found.dtype == torch.float32
    assert np.abs(found.numpy() - exact).max() < 1e-4


def test_noise_is_normal():
    z = noise(KEY, MANY).double()
    assert abs(float(z.mean())) < 0.01
    for power, moment in ((2, 1.0), (4, 3.0), (6, 15.0)):
        assert float((z**power).mean()) == pytest.approx(moment, rel=0.05)
    for limit, share in ((1.0, 0.6827), (2.0, 0.9545), (3.0, 0.9973)):
        assert float((z.abs() < limit).double().mean()) == pytest.approx(share, abs=0.004)


@pytest.mark.parametrize("other", [(4, 7, "a"), (3, 8, "a"), (3, 7, "b")])
def test_seed_step_and_name_each_give_other_noise(other):
    one, two = noise(noise_key(3, 7, "a"), MANY), noise(noise_key(*other), MANY)
    assert abs(float((one * two).mean())) < 0.01


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_bits_do_not_depend_on_the_block(size):
    whole, order = noise(KEY, MANY[:3000]), torch.randperm(3000)
    parts = [noise(KEY, MANY[at : min(at + size, 3000)]) for at in range(0, 3000, size)]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(noise(KEY, order), whole[order])
