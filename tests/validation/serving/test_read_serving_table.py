"""Rows of serving tables: what is read, what is skipped with a reason, and that nothing raises."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_table_rows import GOOD, WITH_EXPERTS, read, row, write

from meshwright.errors import InputError
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.validation.serving.read_serving_table import COLUMNS, is_serving_table, read_serving_table
from meshwright.validation.serving.serving_row import ServingInputs, ServingMeasured, SkippedRow, Workers

MEASURED = ("throughput_tok_s", "throughput_kind", "per_gpu_tok_s", "ttft_ms", "tpot_ms")


@pytest.fixture
def table(tmp_path):
    return tmp_path / "serving.csv"


def test_a_row_is_read(table):
    (found,) = read(table, row())
    assert (found.id, found.source, found.remarks) == ("r", "s", ())
    assert found.inputs == ServingInputs(
        model="llama-3.1-8b",
        device="h100-sxm-80gb",
        devices=2,
        engine="vllm",
        release="0.18.0",
        weights="fp8",
        kv=None,
        workers=(Workers(does="serve", replicas=1, layout=ReplicaLayout(tp=2)),),
        input_tokens=1000,
        output_tokens=500,
        concurrency=16,
        rate_per_s=None,
    )
    assert found.measured == ServingMeasured(ttft_s=0.2, tpot_s=0.02, output_tokens_per_s_per_device=1500)
    assert found.inputs.level_group == ("llama-3.1-8b", "h100-sxm-80gb", "vllm")


def test_the_layout_of_experts_is_read(table):
    (found,) = read(table, row(**WITH_EXPERTS))
    assert found.inputs.workers[0].layout == ReplicaLayout(attention_dp=4, tp=2, ep=8)


@pytest.mark.parametrize(
    ("changes", "per_device"),
    [
        ({"throughput_kind": "total"}, 500),
        ({"throughput_kind": ""}, 1500),
        ({"per_gpu_tok_s": "1200"}, 1200),
        ({"throughput_tok_s": ""}, None),
        ({"throughput_tok_s": "-3"}, None),
        ({"gpus": ""}, None),
    ],
)
def test_throughput_is_of_output_per_device(table, changes, per_device):
    (found,) = read(table, row(**changes))
    assert found.measured.output_tokens_per_s_per_device == per_device


@pytest.mark.parametrize(
    ("changes", "load"),
    [
        ({"request_rate": "inf"}, (16, None)),
        ({"request_rate": "inf", "concurrency": ""}, (None, None)),
        ({"request_rate": "2.5", "concurrency": ""}, (None, 2.5)),
    ],
)
def test_loads(table, changes, load):
    (found,) = read(table, row(**changes))
    assert (found.inputs.concurrency, found.inputs.rate_per_s) == load


@pytest.mark.parametrize(
    ("changes", "weights", "cache"),
    [
        ({"model": "Llama-3.1-8B-FP8-KV", "weight_precision": ""}, "fp8", "fp8"),
        ({"model": "Llama-3.1-8B-NVFP4", "weight_precision": ""}, "fp4", None),
        ({"weight_precision": "", "kv_precision": "FP8"}, None, "fp8"),
        ({"weight_precision": "fp8_block"}, "fp8-block", None),
        ({"weight_precision": "int4_wo"}, "int4", None),
    ],
)
def test_formats(table, changes, weights, cache):
    (found,) = read(table, row(**changes))
    assert (found.inputs.weights, found.inputs.kv) == (weights, cache)


@pytest.mark.parametrize(
    ("gpu", "device"),
    [
        ("NVIDIA H200-SXM-141GB", "h200-sxm-141gb"),
        ("AMD Instinct MI300X 192GB HBM3", "mi300x"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("RTX 6000 Pro Blackwell SE", "rtx-pro-6000"),
        ("B200 (HGX)", "b200"),
        ("TPU v6e (Trillium)", "tpu-v6e"),
        ("A100-PCIE-80GB", "a100-pcie-80gb"),
    ],
)
def test_devices(table, gpu, device):
    (found,) = read(table, row(gpu=gpu))
    assert found.inputs.device == device


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "Llama 9"}, "model = 'Llama 9': must be the name of a model of the zoo"),
        ({"model": ""}, "model: not given"),
        ({"gpu": "Abacus"}, "no device of this name"),
        ({"isl": "0"}, "isl = '0': must be a whole number"),
        ({"osl": "1e99"}, "osl = '1e99': must be a whole number"),
        ({"concurrency": ""}, "concurrency, request_rate: not given"),
        ({"concurrency": "-1"}, "concurrency = '-1'"),
        ({"concurrency": "", "request_rate": "0"}, "request_rate = '0': must be a number above 0"),
        ({"weight_precision": "fp3"}, "weight_precision = 'fp3': must be one of"),
        ({"tp": "3"}, "gpus = 2 must be a multiple of tp·pp·dp = 3"),
        ({"disagg": "some workers"}, "disagg = 'some workers'"),
    ],
)
def test_unreadable_rows_are_skipped(table, changes, reason):
    first, second = read(table, row(**changes), row(id="next"))
    assert isinstance(first, SkippedRow)
    assert reason in first.reason
    assert second.id == "next"


def test_skipped_rows_say_whether_they_are_complete(table):
    without_load = row(model="Llama 9", concurrency="")
    complete = [found.complete for found in read(table, row(model="Llama 9"), without_load, row(gpu=""))]
    assert complete == [True, False, False]


@pytest.mark.parametrize("text", ["", "abc", "-1", "1e300"])
def test_inputs_do_not_depend_on_what_is_measured(table, text):
    names = (*MEASURED, "id", "source")
    (found,) = read(table, row(**dict.fromkeys(names, text)))
    (plain,) = read(table, row())
    assert found.inputs == plain.inputs


def test_unreadable_measured_cells_are_remarked(table):
    (found,) = read(table, row(ttft_ms="soon"))
    assert found.measured.ttft_s is None
    assert "ttft_ms = 'soon'" in found.remarks[0]


def test_a_single_output_token_has_no_time_per_further_token(table):
    (found,) = read(table, row(osl=1))
    assert found.measured.tpot_s is None
    assert found.measured.ttft_s == 0.2


def test_rows_of_another_width_are_skipped(table):
    write(table, [row()])
    with table.open("a") as file:
        file.write("a,b\n")
    _, short = read_serving_table(table)
    assert short.reason == f"has 2 cells, the header {len(COLUMNS)}"
    assert short.id == "a"


def test_columns_that_a_table_lacks_count_as_empty(table):
    columns = ("model", "gpu", "gpus", "isl", "osl", "concurrency")
    (found,) = read_serving_table(write(table, [row()], columns))
    assert found.id == "line 2"
    assert found.inputs.engine == "generic-serving"
    assert found.inputs.workers[0].layout == ReplicaLayout(tp=2)


def test_serving_tables_are_known_by_their_columns(table):
    assert is_serving_table(write(table, [row()]))
    assert not is_serving_table(write(table, [row()], ("seq_len", "global_batch", "device", "devices")))


def test_other_files_are_refused(table):
    table.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="has none of the columns model, gpu, isl, osl"):
        list(read_serving_table(table))
    table.write_text("model,gpu,isl,osl,isl\n")
    with pytest.raises(InputError, match="is a column twice"):
        list(read_serving_table(table))


cells = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "1e999", "nan", "inf", "1", "8", "fp8", "|", "1 workers|x", "é", "\x1b[0m", "9" * 40]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=20),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(COLUMNS), cells, max_size=6))
def test_no_cell_raises(table, changes):
    found = read(table, {**GOOD, **changes}, row())
    assert len(found) == 2
