"""Groups of ranks in one process, and every codec with its options, for tests of exchanges."""

from dataclasses import dataclass
from itertools import product

import torch

from meshwright.plans.synchronisation.compression import Compression
from meshwright.program.synchronisation.stretch import Stretch
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum
from meshwright.runtime.synchronisation.leg import run_in_process

STRETCHES = (
    Stretch("matrix", 35, (1, 5, 7), 0),
    Stretch("vector", 7, None, 0),
    Stretch("empty", 0, None, 0),
    Stretch("experts", 2 * 12 * 16, (2, 12, 16), 1),
)
QUANTISED = [
    {"quantise": name, "bucket": bucket, "rounding": rounding}
    for name, bucket, rounding in product(
        ("int8", "int4", "e3m0", "tree8"), (None, 5, 16), ("nearest", "stochastic")
    )
]
OTHERS = [
    {"ternary": {}},
    {"ternary": {"clip": 2.5}},
    {"low_rank": 2},
    {"low_rank": {"budget": 2}},
    {"low_rank": 1, "cast": "bf16"},
    {"dct": {"chunk": 8, "keep": 3}},
    {"dct": {"chunk": 300, "keep": 3}, "cast": "fp16"},
    {"select": {"keep": 0.3}},
    {"select": {"keep": 0.3, "pattern": "stride"}},
    {"select": {"keep": 0.3, "pattern": "slice"}, "cast": "bf16"},
    {"top_k": 0.1},
    {"top_k": 0.1, "cast": "bf16", "layers": "1"},
    {"random_k": 0.1},
    {"sketch": {"width": 0.3}},
    {"sketch": {"width": 0.3, "rows": 2}, "cast": "fp16"},
    {"quantise": "int8", "layers": "1"},
    {"cast": "bf16"},
    {},
]
CASES = QUANTISED + OTHERS
CPU = torch.device("cpu")


def name_of(options):
    """Return the name of a case."""
    return "-".join(str(value) for value in options.values()) or "none"


@dataclass
class Group:
    """The ranks of a group; ``exchange`` gives each rank's sums."""

    sums: list[EncodedSum]
    weights: list[float]
    begun: int = 0

    @classmethod
    def of(cls, options, stretches=STRETCHES, ranks=3, dtype=torch.float64, weights=None):
        compression = Compression(**options)
        sums = [EncodedSum(compression, stretches, ranks, dtype, CPU, seed=7) for _ in range(ranks)]
        return cls(sums, weights or [1 / ranks] * ranks)

    def begin(self, values, **options):
        """Begin an exchange of each rank's values, and return what is pending."""
        keys = [DrawKey(seed=3, step=self.begun, rank=r, exchange=self.begun) for r in range(len(self.sums))]
        self.begun += 1
        ranks = zip(self.sums, values, keys, strict=True)
        return [one.begin(own, self.weights, key, **options) for one, own, key in ranks]

    def finish(self, pending):
        """End an exchange, and return the sums of each rank."""
        return run_in_process([one.legs(own) for one, own in zip(self.sums, pending, strict=True)])

    def exchange(self, values):
        """Exchange each rank's values, and return the sums of each rank."""
        return self.finish(self.begin(values))

    def exact(self, values):
        """Return the weighted sum without a codec."""
        stretches = zip(*values, strict=True)
        return [sum(w * one for w, one in zip(self.weights, own, strict=True)) for own in stretches]


def drawn_values(seed, stretches=STRETCHES, ranks=3, dtype=torch.float64):
    """Return normal values of each rank and stretch."""
    draw = torch.Generator().manual_seed(seed)
    return [
        [torch.randn(one.elements, generator=draw, dtype=dtype) for one in stretches] for _ in range(ranks)
    ]
