import numpy as np
import pytest

from meshwright.errors import InputError
from meshwright.workload.adapter import Adapter
from meshwright.workload.base_types import BASE_TYPES
from meshwright.workload.workload import Workload


def workload(adapter, **keys):
    return Workload(**{"task": "lora", "seq_len": 128, "global_batch": 8, "adapter": adapter} | keys)


@pytest.mark.parametrize(
    ("adapter", "keys", "fields"),
    [
        (Adapter(), {"task": "sft"}, ["workload.adapter"]),
        (Adapter(form="dora"), {}, ["workload.adapter.form"]),
        (Adapter(rank=0), {}, ["workload.adapter.rank"]),
        (Adapter(alpha=0.0), {}, ["workload.adapter.alpha"]),
        (Adapter(targets=()), {}, ["workload.adapter.targets"]),
        (Adapter(base="int4"), {}, ["workload.adapter.base"]),
        (Adapter(base="fp16"), {}, ["workload.adapter.base"]),
        (Adapter(base="bf16"), {"precision": "fp16"}, ["workload.adapter.base"]),
        (Adapter(form="hd-pissa", base="nf4"), {}, ["workload.adapter.base"]),
        (Adapter(form="hd-pissa", alpha=8.0), {}, ["workload.adapter.alpha"]),
        (
            Adapter(form="hd-pissa", rank=-1, alpha=-1.0, base="int8"),
            {"task": "pretrain"},
            [
                "workload.adapter",
                "workload.adapter.rank",
                "workload.adapter.alpha",
                "workload.adapter.base",
            ],
        ),
    ],
    ids=str,
)
def test_wrong_adapters_are_refused_with_all_problems(adapter, keys, fields):
    with pytest.raises(InputError) as error:
        workload(adapter, **keys)
    assert [problem.field for problem in error.value.problems] == fields


@pytest.mark.parametrize("base", [None, "bf16", "int8", "nf4"])
def test_alpha_is_the_rank_unless_it_is_written(base):
    assert workload(Adapter(rank=16, base=base)).adapter.scale == 1
    assert workload(Adapter(rank=16, alpha=8, base=base)).adapter.scale == 0.5


def test_a_matrix_in_nf4_has_half_a_byte_and_scales_of_scales():
    elements, rows = 4096 * 14336, 14336
    assert BASE_TYPES["nf4"].bytes(elements, rows) / elements == pytest.approx(0.5 + 1 / 64 + 4 / (64 * 256))
    assert BASE_TYPES["nf4"].bytes(64, 1) == 32 + 1 + 4
    assert BASE_TYPES["int8"].bytes(elements, rows) == elements + 4 * rows
    assert BASE_TYPES["half"].bytes(elements, rows) == 2 * elements


@pytest.mark.parametrize("name", BASE_TYPES)
def test_arrays_of_sizes_give_the_bytes_of_each(name):
    elements, rows = np.array([64 * 64, 64 * 65]), np.array([64, 65])
    each = [BASE_TYPES[name].bytes(int(n), int(r)) for n, r in zip(elements, rows, strict=True)]
    assert BASE_TYPES[name].bytes(elements, rows).tolist() == each
