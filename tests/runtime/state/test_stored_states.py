"""States in narrow types: what is stored and what comes back."""

import pytest
import torch

from meshwright.runtime.state.stored_states import StoredState, opened, scale_of

WHOLE = (((0, 64),),)


def state(dtype, pieces=(), size=64):
    return StoredState(torch.zeros(size, dtype=dtype), torch.ones(len(pieces)), pieces)


def test_a_wide_state_is_changed_in_place():
    stored = state(torch.float32)
    with opened([stored], torch.float32) as (wide,):
        wide += 1
        assert wide is stored.values
    assert stored.values.eq(1).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
@pytest.mark.parametrize("size", [1e-30, 1e-6, 1.0, 1e5])
def test_a_narrow_state_comes_back_within_half_a_place_of_its_largest_element(dtype, size):
    scaled = dtype != torch.bfloat16
    stored = state(dtype, WHOLE if scaled else ())
    wanted = size * torch.linspace(-1, 1, 64, dtype=torch.float64)
    with opened([stored], torch.float64) as (wide,):
        wide.copy_(wanted)
    place = size * torch.finfo(dtype).eps
    assert (stored.to(torch.float64) - wanted).abs().max() <= place
    assert stored.values.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn])
def test_the_smallest_numbers_do_not_overflow(dtype):
    for size in (0.0, 1e-300, 1e-45, 1e-42, 1e-39):
        stored = state(dtype, WHOLE)
        with opened([stored], torch.float64) as (wide,):
            wide.fill_(size)
        assert stored.to(torch.float64).isfinite().all()
        assert stored.to(torch.float64).abs().max() <= 2 * size


def test_each_piece_has_a_scale_of_its_own():
    stored = state(torch.float8_e4m3fn, (((0, 32),), ((32, 64),)))
    with opened([stored], torch.float32) as (wide,):
        wide[:32], wide[32:] = 1.0, 1e-6
    assert stored.to(torch.float32)[40].item() == pytest.approx(1e-6, rel=1e-6)
    assert stored.scale_at(40).item() == pytest.approx(1e-6 / 448, rel=1e-6)
    assert stored.scale_at(0).item() == pytest.approx(1 / 448, rel=1e-6)
    assert state(torch.bfloat16).scale_at(0) is None
    assert scale_of(iter([torch.ones(3)]), torch.float16).item() == pytest.approx(1 / 65504)
