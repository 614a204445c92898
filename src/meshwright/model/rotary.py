"""Rotary position embeddings as data, and derived numbers: frequencies, attention factor, ALiBi slopes.

A head's rotated elements form pairs; pair i of dim/2 turns by position · f_i, f_i = theta^(−2i/dim) (RoFormer,
arXiv 2104.09864). A scaling changes f_i so that a model reads further than it was trained, and may multiply
cosine and sine by a factor ≥ 1:

* ``Linear``: f_i / factor (position interpolation, arXiv 2306.15595);
* ``Llama3``: long waves are divided by factor, short ones stay, with interpolation between them (Llama 3.1);
* ``Yarn``: the same by a ramp over the pairs (arXiv 2309.00071);
* ``LongRope``: f_i / (a factor for each pair), one list up to the original length, another beyond it
  (arXiv 2402.13753).

The formulas are those of transformers 5.23 (``modeling_rope_utils.py``), which computes them in single precision:
there they differ in the eighth digit. ``alibi_head_slopes`` are ALiBi's slopes (arXiv 2108.12409), an alternative to
rotation. This module uses no tensors.
"""

from dataclasses import dataclass
from math import ceil, floor, log, log2, pi, sqrt


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Position interpolation: every wave is stretched by ``factor``."""

    factor: float

    @property
    def attention_factor(self) -> float:
        """Factor of cosine and sine."""
        return 1.0

    def scaled(self, plain: tuple[float, ...], rotary: "Rotary", positions: int) -> tuple[float, ...]:
        """Return the scaled frequencies from the plain ones."""
        return tuple(frequency / self.factor for frequency in plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3:
    """Llama 3.1's scaling: waves longer than ``original_positions / low_freq_factor`` are stretched, short ones not."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: int

    @property
    def attention_factor(self) -> float:
        """Factor of cosine and sine."""
        return 1.0

    def scaled(self, plain: tuple[float, ...], rotary: "Rotary", positions: int) -> tuple[float, ...]:
        """Return the scaled frequencies from the plain ones."""
        return tuple(map(self._one, plain))

    def _one(self, frequency: float) -> float:
        turns = self.original_positions * frequency / (2 * pi)  # within the original length
        share = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        share = min(1.0, max(0.0, share))
        return (1 - share) * frequency / self.factor + share * frequency


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """YaRN: pairs that turn less than ``beta_slow`` times are stretched, those above ``beta_fast`` not.

    ``given_attention_factor`` is None if it follows from ``factor``; ``mscale`` and ``mscale_all_dim`` count only
    together. ``truncate`` rounds the ends of the ramp outwards to whole pairs.
    """

    factor: float
    original_positions: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    given_attention_factor: float | None = None
    truncate: bool = True

    @property
    def attention_factor(self) -> float:
        """Factor of cosine and sine: 0.1·ln(factor) + 1 unless given."""
        if self.given_attention_factor is not None:
            return self.given_attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._temperature(self.mscale) / self._temperature(self.mscale_all_dim)
        return self._temperature(1.0)

    @property
    def score_factor(self) -> float:
        """DeepSeek's factor of scores: (0.1·mscale_all_dim·ln(factor) + 1)²; 1 without mscale_all_dim."""
        return self._temperature(self.mscale_all_dim) ** 2 if self.mscale_all_dim else 1.0

    def scaled(self, plain: tuple[float, ...], rotary: "Rotary", positions: int) -> tuple[float, ...]:
        """Return the scaled frequencies from the plain ones."""
        low, high = self._pair_with(self.beta_fast, rotary), self._pair_with(self.beta_slow, rotary)
        if self.truncate:
            low, high = floor(low), ceil(high)
        low, high = max(low, 0), min(high, rotary.dim - 1)
        width = high - low if high != low else 0.001  # a step instead of a ramp
        shares = (min(1.0, max(0.0, (pair - low) / width)) for pair in range(len(plain)))
        return tuple(
            share * frequency / self.factor + (1 - share) * frequency
            for share, frequency in zip(shares, plain, strict=True)
        )

    def _temperature(self, scale: float) -> float:
        return 0.1 * scale * log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def _pair_with(self, turns: float, rotary: "Rotary") -> float:
        """Return the pair (a fraction) that makes so many turns within the original length."""
        longest = self.original_positions / (turns * 2 * pi)
        return rotary.dim * log(longest) / (2 * log(rotary.theta))


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRope:
    """LongRoPE: a factor for each pair, ``short`` up to ``original_positions``, ``long`` for longer sequences.

    The whole sequence decides which list applies, even if a device holds only a part of it.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    factor: float
    original_positions: int
    given_attention_factor: float | None = None

    @property
    def attention_factor(self) -> float:
        """Factor of cosine and sine: √(1 + ln factor / ln original_positions) unless given."""
        if self.given_attention_factor is not None:
            return self.given_attention_factor
        if self.factor <= 1:
            return 1.0
        return sqrt(1 + log(self.factor) / log(self.original_positions))

    def scaled(self, plain: tuple[float, ...], rotary: "Rotary", positions: int) -> tuple[float, ...]:
        """Return the frequencies for a sequence of ``positions``, from the plain ones."""
        factors = self.long if positions > self.original_positions else self.short
        return tuple(frequency / factor for frequency, factor in zip(plain, factors, strict=True))


Scaling = Linear | Llama3 | Yarn | LongRope


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """The rotation of one layer's queries and keys.

    The first ``dim`` elements of a head are rotated, the others are unchanged. A pair is two neighbours if
    ``interleaved``, else elements i and i + dim/2.
    """

    theta: float
    dim: int
    interleaved: bool = False
    scaling: Scaling | None = None

    @property
    def attention_factor(self) -> float:
        """Factor of cosine and sine."""
        return 1.0 if self.scaling is None else self.scaling.attention_factor

    def frequencies(self, positions: int) -> tuple[float, ...]:
        """Return the angle per position of each pair, for a sequence of ``positions``."""
        plain = tuple(self.theta ** (-2 * pair / self.dim) for pair in range(self.dim // 2))
        return plain if self.scaling is None else self.scaling.scaled(plain, self, positions)


def alibi_head_slopes(heads: int) -> tuple[float, ...]:
    """Return ALiBi's slope of each head: a geometric sequence, continued by every second term of a finer one."""
    whole = 2 ** floor(log2(heads))
    slopes = [2 ** (-8 * (head + 1) / whole) for head in range(whole)]
    finer = [2 ** (-4 * (2 * head + 1) / whole) for head in range(heads - whole)]
    return tuple(slopes + finer)
