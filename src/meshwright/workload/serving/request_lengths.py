"""Lengths of requests: a histogram of prompt tokens and written tokens, and the prefix that prompts share."""

from dataclasses import dataclass
from math import fsum

MAX_TOKENS = 2**24
MAX_LENGTHS = 2**10
SHARE_TOLERANCE = 1e-6
"""Distance from 1 that the sum of written shares may have: they are decimals."""


@dataclass(frozen=True, slots=True)
class RequestLengths:
    """A histogram of requests: (prompt tokens, written tokens, share) each; the shares sum to 1.

    ``prefix_tokens`` is the length of the beginning that all prompts share. The first token is written by the prompt's
    own pass: a request of one written token is prefill alone.
    """

    pairs: tuple[tuple[int, int, float], ...]
    prefix_tokens: int = 0

    @classmethod
    def fixed(cls, input_tokens: int, output_tokens: int, prefix_tokens: int = 0) -> "RequestLengths":
        """Return the lengths of requests that are all alike."""
        return cls(((input_tokens, output_tokens, 1.0),), prefix_tokens)

    @property
    def mean_input(self) -> float:
        """Mean prompt tokens of a request, the shared prefix included."""
        return fsum(tokens * share for tokens, _, share in self.pairs)

    @property
    def mean_output(self) -> float:
        """Mean written tokens of a request."""
        return fsum(tokens * share for _, tokens, share in self.pairs)

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and written ones."""
        return max(prompt + written for prompt, written, _ in self.pairs)

    @property
    def prefill_only(self) -> bool:
        """Return true if no request writes more than one token."""
        return all(written == 1 for _, written, _ in self.pairs)
