"""Tokens of one iteration of a replica, and the rows that they are on one rank.

An iteration has n_d sequences that decode with a context c on each rank of attention_dp, and n_p prompt tokens, which
attend to some positions in the mean, on some of them. The slowest has m = n_p/cp + n_d rows in every product; the
N = n_p·ranks with prompts + n_d·attention_dp·cp rows of all meet the experts.
"""

from dataclasses import dataclass, replace

import numpy as np

from meshwright.model.architecture import Architecture
from meshwright.program.local_shape import LocalShape, Number
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationLoad:
    """The tokens of one iteration on one rank of attention_dp.

    ``prompt_tokens`` attend to ``prompt_positions`` in the mean and end ``prompts`` prompts, on ``prompt_ranks`` of
    attention_dp; ``sequences`` decode a token each with ``context`` tokens before it, on all of them.
    """

    prompt_tokens: Number = 0.0
    prompt_positions: Number = 0.0
    prompts: Number = 0.0
    prompt_ranks: Number = 1.0
    sequences: Number = 0.0
    context: Number = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationShape:
    """An iteration's part on one rank of a replica, the counterpart of ``LocalShape`` in training."""

    degrees: ReplicaDegrees
    load: IterationLoad
    formats: StorageFormats
    arch: Architecture

    @property
    def rows(self) -> Number:
        """Rows of a rank's products."""
        return self.load.prompt_tokens / self.degrees.cp + self.load.sequences

    @property
    def expert_groups(self) -> Number:
        """Ranks that bring different rows to the experts."""
        return self.degrees.attention_dp * self.degrees.cp

    @property
    def expert_tokens(self) -> Number:
        """Rows of all ranks that meet the experts."""
        load = self.load
        return load.prompt_tokens * np.maximum(load.prompt_ranks, 1.0) + load.sequences * self.expert_groups

    @property
    def logit_rows(self) -> Number:
        """Rows whose next token is asked for."""
        return self.load.sequences + self.load.prompts

    @property
    def local(self) -> LocalShape:
        """The shape of training's lowering with as many tokens on a rank."""
        return replace(self.degrees.shape, seq_len=self.rows * self.degrees.cp)
