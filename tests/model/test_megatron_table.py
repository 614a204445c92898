"""The ten models of Narayanan et al. 2021 (arXiv 2104.04473), table 1, by the paper's own closed forms.

P = 12·l·h²·(1 + 13/(12·h) + (V + s)/(12·l·h)); FLOPs of an iteration with full recomputation
F = 96·B·s·l·h²·(1 + s/(6·h) + V/(16·l·h)). F counts a layer four times forward and the logits three times,
since the head is not recomputed. The iteration times follow from F, the devices and their published rate.
"""

import math
from dataclasses import dataclass

import pytest

from meshwright.model.load import load_model

VOCAB, SEQ = 51200, 2048


@dataclass(frozen=True)
class Row:
    name: str
    heads: int
    hidden: int
    layers: int
    devices: int
    batch: int
    tflops_per_device: float
    iteration_s: float

    @property
    def parameters(self) -> float:
        h, l = self.hidden, self.layers  # noqa: E741 - the paper's letters
        return 12 * l * h**2 * (1 + 13 / (12 * h) + (VOCAB + SEQ) / (12 * l * h))

    @property
    def flops(self) -> float:
        h, l = self.hidden, self.layers  # noqa: E741
        return 96 * self.batch * SEQ * l * h**2 * (1 + SEQ / (6 * h) + VOCAB / (16 * l * h))


ROWS = [
    Row("1.7", 24, 2304, 24, 32, 512, 137, 3.5),
    Row("3.6", 32, 3072, 30, 64, 512, 138, 3.7),
    Row("7.5", 32, 4096, 36, 128, 512, 142, 3.7),
    Row("18.4", 48, 6144, 40, 256, 1024, 135, 9.4),
    Row("39.1", 64, 8192, 48, 512, 1536, 138, 14.5),
    Row("76.1", 80, 10240, 60, 1024, 1792, 140, 16.1),
    Row("145.6", 96, 12288, 80, 1536, 2304, 148, 24.8),
    Row("310.1", 128, 16384, 96, 1920, 2160, 155, 37.6),
    Row("529.6", 128, 20480, 105, 2520, 2520, 163, 54.1),
    Row("1008", 160, 25600, 128, 3072, 3072, 163, 102.6),
]
each_row = pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])


@each_row
def test_parameters(row: Row) -> None:
    graph = load_model(f"gpt-{row.name}b")
    assert graph.parameters == round(row.parameters) + 2 * row.hidden  # the form leaves out the final norm
    assert round(graph.parameters / 1e9, 1) == float(row.name)
    assert graph.architecture.heads == row.heads


def iteration_flops(row: Row) -> float:
    graph = load_model(f"gpt-{row.name}b")
    head = graph.head.flops_per_token_forward(SEQ, causal=False)
    layers = graph.flops_per_token_forward(SEQ) - head
    return (4 * layers + 3 * head) * row.batch * SEQ


@each_row
def test_flops_of_an_iteration(row: Row) -> None:
    assert math.isclose(iteration_flops(row), row.flops, rel_tol=1e-9)


@each_row
def test_iteration_time_from_the_published_rate(row: Row) -> None:
    seconds = iteration_flops(row) / (row.devices * row.tflops_per_device * 1e12)
    assert round(seconds, 1) == row.iteration_s


def test_four_forwards_bound_the_paper_from_above() -> None:
    """Recomputing the head too costs what the vocabulary is worth: less the larger the model."""
    excess = [
        4 * load_model(f"gpt-{row.name}b").flops_per_token_forward(SEQ) * row.batch * SEQ / row.flops - 1
        for row in ROWS
    ]
    assert excess == sorted(excess, reverse=True)
    assert 0.01 < excess[0] < 0.02
    assert 0 < excess[-1] < 1e-3
