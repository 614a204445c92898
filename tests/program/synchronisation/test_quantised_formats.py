"""The codes of ``tree8`` and ``e3m0``, read bit by bit in another way."""

import pytest

from meshwright.plans.synchronisation.compression import FORMATS
from meshwright.program.synchronisation.quantised_formats import QUANTISED_FORMATS

TREE8 = QUANTISED_FORMATS["tree8"].codes


def test_every_format_of_the_plan_has_a_row():
    assert tuple(QUANTISED_FORMATS) == FORMATS


def test_tree8_has_256_distinct_codes():
    assert len(TREE8) == len(set(TREE8)) == 256
    assert max(TREE8) == 1
    assert min(abs(code) for code in TREE8 if code) == pytest.approx(0.55e-6)


@pytest.mark.parametrize("code", [*range(1, 128), *range(129, 256)])
def test_tree8_bisects_a_decade_along_its_fraction_bits(code):
    sign, magnitude = divmod(code, 128)
    bits = f"{magnitude:07b}"
    zeros = bits.index("1")
    low, high = 0.1, 1.0
    for bit in bits[zeros + 1 :]:
        middle = (low + high) / 2
        low, high = (middle, high) if bit == "1" else (low, middle)
    assert TREE8[code] == pytest.approx((-1) ** sign * 10.0**-zeros * (low + high) / 2, rel=1e-14)


def test_e3m0_has_a_sign_and_seven_powers_of_two():
    codes = QUANTISED_FORMATS["e3m0"].codes
    assert codes[:8] == (0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
    assert codes[8:] == tuple(-code for code in codes[:8])


@pytest.mark.parametrize(("name", "scales"), [("int8", 8), ("int4", 8), ("e3m0", 4), ("tree8", 4)])
def test_a_bucket_is_codes_and_scales(name, scales):
    bits = QUANTISED_FORMATS[name].bits
    assert QUANTISED_FORMATS[name].bucket_bytes(5) == {8: 5, 4: 3}[bits] + scales
