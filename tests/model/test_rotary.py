"""Rotary frequencies and ALiBi slopes: what the papers state, and how the scalings meet."""

import math

import pytest

from meshwright.model.rotary import Linear, Llama3, LongRope, Rotary, Yarn, alibi_head_slopes

PLAIN = Rotary(theta=10000.0, dim=64)
LLAMA3 = Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=8192)
YARN = Yarn(factor=4.0, original_positions=2048)
LONGROPE = LongRope(short=(1.5,) * 32, long=(6.0,) * 32, factor=32.0, original_positions=4096)


def scaled(scaling, positions=1 << 20):
    return Rotary(theta=10000.0, dim=64, scaling=scaling).frequencies(positions)


def test_the_first_pair_turns_by_one_per_position_and_the_last_by_about_one_over_theta():
    frequencies = PLAIN.frequencies(1)
    assert frequencies[0] == 1.0
    assert frequencies[-1] == pytest.approx(10000.0 ** (-62 / 64))
    assert len(frequencies) == 32


def test_a_linear_scaling_reads_position_p_as_the_plain_rotation_reads_p_over_factor():
    assert scaled(Linear(factor=4.0)) == tuple(frequency / 4 for frequency in PLAIN.frequencies(1))


@pytest.mark.parametrize(("scaling", "factor"), [(LLAMA3, 8.0), (YARN, 4.0)])
def test_short_waves_stay_and_long_ones_are_stretched(scaling, factor):
    shares = [new / old for new, old in zip(scaled(scaling), PLAIN.frequencies(1), strict=True)]
    assert shares[0] == 1.0
    assert shares[-1] == pytest.approx(1 / factor)
    assert shares == sorted(shares, reverse=True)
    assert any(1 / factor < share < 1 for share in shares[1:-1])


def test_llama3_divides_exactly_the_waves_that_do_not_turn_once_in_the_original_length():
    for new, old in zip(scaled(LLAMA3), PLAIN.frequencies(1), strict=True):
        turns = 8192 * old / (2 * math.pi)
        assert (new == pytest.approx(old / 8)) == (turns <= 1)
        assert (new == old) == (turns >= 4)


def test_yarn_without_a_stretch_is_the_plain_rotation():
    same = Yarn(factor=1.0, original_positions=2048)
    assert scaled(same) == pytest.approx(PLAIN.frequencies(1), rel=1e-15)
    assert same.attention_factor == 1.0


def test_yarn_sharpens_attention_by_the_logarithm_of_its_factor():
    assert YARN.attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    equal = Yarn(factor=4.0, original_positions=2048, mscale=1.0, mscale_all_dim=1.0)
    assert equal.attention_factor == 1.0
    lone = Yarn(factor=4.0, original_positions=2048, mscale=2.0)
    assert lone.attention_factor == YARN.attention_factor
    assert Yarn(factor=4.0, original_positions=2048, given_attention_factor=1.5).attention_factor == 1.5


def test_deepseeks_yarn_multiplies_scores_by_a_square():
    assert YARN.score_factor == 1.0
    given = Yarn(factor=40.0, original_positions=4096, mscale=1.0, mscale_all_dim=0.5)
    assert given.score_factor == pytest.approx((0.05 * math.log(40) + 1) ** 2)
    assert Yarn(factor=1.0, original_positions=4096, mscale_all_dim=0.5).score_factor == 1.0


def test_a_yarn_ramp_without_width_is_a_step():
    steep = Yarn(factor=4.0, original_positions=2048, beta_fast=8.0, beta_slow=8.0, truncate=False)
    shares = {round(new / old, 6) for new, old in zip(scaled(steep), PLAIN.frequencies(1), strict=True)}
    assert shares == {1.0, 0.25}


def test_longrope_changes_lists_beyond_the_original_length():
    plain = PLAIN.frequencies(1)
    assert scaled(LONGROPE, 4096) == pytest.approx([frequency / 1.5 for frequency in plain])
    assert scaled(LONGROPE, 4097) == pytest.approx([frequency / 6 for frequency in plain])


def test_longrope_sharpens_attention_by_the_growth_of_the_length():
    assert LONGROPE.attention_factor == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))
    assert LongRope(short=(), long=(), factor=1.0, original_positions=4096).attention_factor == 1.0


def test_alibi_slopes_of_eight_heads_are_the_papers():
    assert alibi_head_slopes(8) == tuple(2.0**-power for power in range(1, 9))


def test_more_heads_than_a_power_of_two_take_every_second_slope_of_the_next():
    assert alibi_head_slopes(12) == (*alibi_head_slopes(8), *alibi_head_slopes(16)[0:8:2])
    assert len(alibi_head_slopes(112)) == 112
