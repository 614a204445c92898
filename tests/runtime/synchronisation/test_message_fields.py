import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.runtime.synchronisation.message_fields import (
    FieldReader,
    index_field,
    packed,
    packed_codes,
    read_indices,
    unpacked_codes,
)


@given(st.sampled_from([2, 4, 8]), st.lists(st.integers(0, 255), min_size=1, max_size=30))
def test_codes_are_packed_and_unpacked(bits, numbers):
    codes = torch.tensor([number % 2**bits for number in numbers], dtype=torch.uint8)
    held = packed_codes(torch.stack([codes, codes.flip(0)]), bits)
    assert held.shape == (2, -(-len(codes) * bits // 8))
    assert unpacked_codes(held, bits, len(codes)).tolist() == [codes.tolist(), codes.flip(0).tolist()]


@pytest.mark.parametrize(("width", "largest"), [(1, 255), (2, 65_535), (4, 2**32 - 1), (8, 2**62)])
def test_indices_keep_their_lower_bytes(width, largest):
    indices = torch.tensor([0, 1, largest])
    field = index_field(indices, width)
    assert len(field) == 3 * width
    assert read_indices(field, width).tolist() == indices.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wide_floats_count_four_bytes(dtype):
    values = torch.randn(5, dtype=dtype)
    halves = torch.randn(3).bfloat16()
    codes = torch.arange(7, dtype=torch.uint8)
    message = packed(codes, values, halves)
    assert message.counted_bytes == 7 + 5 * 4 + 3 * 2
    fields = FieldReader(message.payload)
    assert torch.equal(fields.take(7, torch.uint8), codes)
    assert torch.equal(fields.take(5, dtype), values)  # behind 7 bytes: not aligned in the message
    assert torch.equal(fields.take(3, torch.bfloat16), halves)
