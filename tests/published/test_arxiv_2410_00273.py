"""Every GPT3-1T row with 1-D tensor parallelism of arXiv 2410.00273, appendix A.4.

``arxiv_2410_00273_gpt3_1t.csv`` holds the printed step times and, to six digits, the parts and memory of the same
configurations in the result files that the paper's authors publish with their code.
"""

import csv
from pathlib import Path

import pytest
from arxiv_2410_00273_layer import layer_operators
from arxiv_2410_00273_step import (
    GPT3_1T,
    Degrees,
    bubble_seconds,
    comprehensive_step,
    placements,
    system,
)

from meshwright.errors import InputError
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.timeline import run

GLOBAL_BATCH = 4096
BOUND = 0.005
PARTS = ("compute", "memory", "tp", "dp", "pp", "bubble")
KINDS = ("parameters", "gradients", "optimizer", "activations")
TABLE = Path(__file__).parent / "arxiv_2410_00273_gpt3_1t.csv"
ROWS = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))


def degrees_of(row, prefix=""):
    return Degrees(*(int(row[prefix + axis]) for axis in ("dp", "tp", "pp")))


def step_of(row):
    local = degrees_of(row, "local_")
    return comprehensive_step(GPT3_1T, system(row["system"]), degrees_of(row), local, GLOBAL_BATCH)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['system']}-{row['domain']}-{row['devices']}")
def test_a_row_has_the_published_time_parts_and_memory(row):
    step = step_of(row)
    assert step.step_s == pytest.approx(float(row["printed_step_s"]), rel=BOUND)
    for part in PARTS:
        assert step.parts[part] == pytest.approx(float(row[f"{part}_s"]), rel=BOUND, abs=1e-9), part
    for kind in KINDS:
        assert step.memory[kind] == pytest.approx(1e9 * float(row[f"{kind}_gb"]), rel=BOUND), kind
    errors = [step.parts[part] / float(row[f"{part}_s"]) - 1 for part in PARTS if float(row[f"{part}_s"])]
    print(f"{row['system']} {row['devices']}: largest error of a part {max(map(abs, errors)):.1e}")
    assert step.memory_bytes <= system(row["system"]).capacity_bytes


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['system']}-{row['domain']}-{row['devices']}")
def test_the_published_placement_is_the_fastest_one(row):
    chosen, degrees = system(row["system"]), degrees_of(row)
    steps = {
        local: comprehensive_step(GPT3_1T, chosen, degrees, local, GLOBAL_BATCH).step_s
        for local in placements(degrees, int(row["domain"]))
    }
    assert steps[degrees_of(row, "local_")] == min(steps.values())
    for local in steps:
        assert local.dp * local.tp * local.pp == int(row["domain"])


def test_the_memory_of_2048_a100s_adds_up_as_printed():
    row = next(row for row in ROWS if row["system"] == "a100" and row["devices"] == "2048")
    step = step_of(row)
    printed_gb = {"parameters": 7.866, "gradients": 7.866, "optimizer": 5.899, "activations": 57.064}
    for kind, value in printed_gb.items():
        assert step.memory[kind] / 1e9 == pytest.approx(value, abs=0.0005)
    assert step.memory_bytes / 1e9 == pytest.approx(78.7, abs=0.05)


def test_parameters_are_a_trillion():
    operators = layer_operators(GPT3_1T, 1, 4.0)
    assert 128 * sum(op.parameters for op in operators) == pytest.approx(1e12, rel=0.01)
    e = GPT3_1T.hidden
    assert sum(op.parameters for op in operators) == 12 * e * e + 4 * e + (e + 4 * e + e)


def test_one_layer_on_eight_a100s_operator_by_operator():
    a100 = system("a100")
    operators = {op.name: op for op in layer_operators(GPT3_1T, 8, a100.matrix_flops / a100.vector_flops)}
    forward_us = {name: a100.compute_seconds(op, False) * 1e6 for name, op in operators.items()}
    tokens, hidden = 2048, 25600
    product = 2 * tokens * hidden * 3 * hidden / 8 / (0.8 * 312e12) * 1e6
    assert forward_us["qkv"] == pytest.approx(20 + product, rel=1e-4)
    assert operators["qkv"].exchanged_bytes == (0.0, 2 * tokens * hidden)
    assert operators["ffn_down"].exchanged_bytes == (2 * tokens * hidden, 0.0)
    assert sum(1 for op in operators.values() for size in op.exchanged_bytes if size) == 8
    gather = a100.collective_seconds(2 * tokens * hidden, 8, 8)
    assert gather == pytest.approx(7 * 2.5e-6 + 7 / 8 * 2 * tokens * hidden / (0.7 * 300e9))


def test_a_group_across_domains_uses_all_its_nics():
    b200 = system("b200")
    whole, split = (b200.collective_seconds(1e9, 16, local) for local in (1, 8))
    assert whole == pytest.approx(15 * 5e-6 + 15 / 16 * 1e9 / (0.7 * 100e9))
    assert split == pytest.approx(5e-6 + 14 * 2.5e-6 + 15 / 16 * 1e9 / (0.7 * 800e9))


@pytest.mark.parametrize(("ranks", "micro_batches"), [(1, 3), (4, 2), (4, 16), (8, 8)])
def test_the_bubble_is_that_of_the_schedule(ranks, micro_batches):
    lists = SCHEDULES["1f1b"].lists(ranks, micro_batches, 1)
    length = run(lists, lambda action: 1.0 if action.kind == "F" else 2.2).latency
    assert bubble_seconds(1.0, 2.2, micro_batches, ranks) == pytest.approx(length - micro_batches * 3.2)
    assert bubble_seconds(1.0, 2.2, micro_batches, ranks) == pytest.approx((ranks - 1) * 3.2)


def test_wrong_input_is_refused_with_every_problem():
    with pytest.raises(InputError, match=r"a100"):
        system("a10")
    with pytest.raises(InputError) as refused:
        comprehensive_step(GPT3_1T, system("a100"), Degrees(3, 7, 0), Degrees(1, 2, 1), GLOBAL_BATCH)
    assert {problem.field for problem in refused.value.problems} == {"dp", "tp", "local.tp", "local.pp"}
