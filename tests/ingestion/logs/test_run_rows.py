"""Rows made from logs: their cells and origins, what contradicts, what is missing, and that they are used."""

import csv
import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_samples import GIVEN, NAMES, OUT_OF_MEMORY, step, steps, summary_of, table, text_of

from meshwright.errors import InputError
from meshwright.ingestion.logs.plan_columns import plan_columns
from meshwright.ingestion.logs.run_row import run_row
from meshwright.ingestion.logs.run_table import HEADER, append_rows, write_rows
from meshwright.plans.files.plan_file import parse_plan
from meshwright.validation.predict_runs import predict_runs
from meshwright.validation.read_run_table import COLUMNS, Run, read_runs

OPTIONS = {
    "num_layers": 32,
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "num_attention_heads": 32,
    "group_query_attention": True,
    "num_query_groups": 8,
    "kv_channels": 128,
    "swiglu": True,
    "untie_embeddings_and_output_weights": True,
    "seq_length": 8192,
    "global_batch_size": 64,
    "micro_batch_size": 1,
    "world_size": 16,
    "data_parallel_size": 8,
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 1,
    "sequence_parallel": True,
    "use_distributed_optimizer": True,
    "bf16": True,
    "padded_vocab_size": 128256,
}
LOG = table(**OPTIONS) + steps(1, 9, 2000)
DEVICE = {"device": "h100-sxm-80gb"}
PLAN = """
plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 16
workload: {seq_len: 8192, global_batch: 64}
stack: megatron-core@0.19
layout: {dp_replicate: 2, dp_shard: 4, tp: 2}
sharding: zero1
"""


def _row(text, beside=DEVICE):
    return run_row(summary_of(text), beside)


def _without(*names, **changes):
    return table(**{name: value for name, value in OPTIONS.items() if name not in names} | changes) + steps(
        1, 9
    )


def _problems(text, beside=DEVICE):
    with pytest.raises(InputError) as error:
        _row(text, beside)
    return {problem.field: problem for problem in error.value.problems}


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_logs_are_runs_that_are_predicted(name, tmp_path):
    row = run_row(summary_of(text_of(name)), GIVEN.get(name, {}))
    path = tmp_path / "runs.csv"
    path.write_text(write_rows([row.cells]), encoding="utf-8")
    (run,) = read_runs(path)
    assert isinstance(run, Run), run
    predicted = predict_runs([run])
    assert not predicted.reasons
    assert predicted.made.all()
    assert run.outcome == ("oom" if name == "out-of-memory.log" else "ok")


@pytest.mark.parametrize(
    "name",
    ["megatron-bridge-0.3.log", "megatron-lm-2.6.log", "nemo-2.log", "torchtitan-2025-02.log", "nemo-1.log"],
)
def test_published_times_are_of_the_size_that_is_predicted(name, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(
        write_rows([run_row(summary_of(text_of(name)), GIVEN.get(name, {})).cells]), encoding="utf-8"
    )
    runs = list(read_runs(path))
    assert 0.5 < predict_runs(runs).step_s[0] / runs[0].step_time_s < 2


def test_every_cell_is_a_column_and_has_an_origin():
    row = _row(LOG, DEVICE | {"source": "us"})
    assert set(row.cells) <= set(HEADER)
    assert row.origins.keys() == row.cells.keys()
    assert row.origins["device"] == ("given", "")
    assert row.origins["tp"] == ("log", "tensor_model_parallel_size 2")
    assert row.cells["step_time_s"] == "2"
    assert row.cells["step_time_origin"] == "median of 6 reports; 10 to 90 %: 2 to 2 s"
    assert not row.problems


def test_the_header_has_every_column_that_validate_reads():
    assert set(COLUMNS) <= set(HEADER)
    assert len(set(HEADER)) == len(HEADER)


@pytest.mark.parametrize(
    ("dispatcher", "beside", "cells"),
    [
        ("alltoall", False, ("all-to-all", "false")),
        ("flex", True, ("once", "true")),
        ("allgather", True, (None, "true")),
    ],
)
def test_how_experts_exchange_is_said_of_models_that_have_some(dispatcher, beside, cells):
    said = {"moe_token_dispatcher_type": dispatcher, "overlap_moe_expert_parallel_comm": beside}
    found = _row(_without(num_experts=8, moe_router_topk=2, moe_ffn_hidden_size=14336, **said)).cells
    assert (found.get("expert_dispatch"), found.get("expert_overlap")) == cells
    assert not {"expert_dispatch", "expert_overlap"} & _row(_without(**said)).cells.keys()


def test_a_released_model_is_known_by_its_sizes():
    assert _row(LOG).cells["model"] == "llama-3.1-8b"
    assert _row(_without("padded_vocab_size", padded_vocab_size=32768)).cells["model"] == "mistral-7b-v0.3"
    assert "model" not in _row(_without("num_layers", num_layers=31)).cells
    assert "model" not in _row(_without("padded_vocab_size", padded_vocab_size=64000)).cells


def test_a_plan_says_what_the_log_does_not():
    row = _row(steps(1, 9), plan_columns(parse_plan(PLAN)))
    expected = {
        "tp": "2",
        "dp": "8",
        "shard_group": "4",
        "device": "h100-sxm-80gb",
        "devices": "16",
        "stack": "megatron-core@0.19",
    }
    assert expected.items() <= row.cells.items()
    assert {row.origins[column].source for column in expected} == {"given"}


def test_a_plan_and_the_log_of_its_run_do_not_contradict_each_other():
    assert not _row(LOG, plan_columns(parse_plan(PLAN))).problems


def test_where_a_number_is_contradicted_the_log_s_stands_with_a_warning():
    row = _row(LOG, DEVICE | {"tp": 4})
    (problem,) = row.problems
    assert (row.cells["tp"], problem.field, problem.severity) == ("2", "tp", "warning")
    assert "tensor_model_parallel_size 2" in problem.rule


def test_where_a_name_is_contradicted_the_given_one_stands_with_a_warning():
    row = _row(LOG, DEVICE | {"stack": "our-fork", "schedule": "zb-h1"})
    assert (row.cells["stack"], row.cells["schedule"]) == ("our-fork", "zb-h1")
    assert {problem.field for problem in row.problems} == {"stack", "schedule"}
    assert row.origins["stack"].source == "given"


def test_a_plan_of_another_model_is_a_warning_and_a_free_name_is_none():
    assert [problem.field for problem in _row(LOG, DEVICE | {"model": "llama-3.1-70b"}).problems] == ["model"]
    row = _row(LOG, DEVICE | {"model": "our model"})
    assert (row.cells["model"], row.problems) == ("our model", ())


def test_given_numbers_may_be_written_as_spreadsheets_do():
    text = text_of("deepspeed-0.14.log").replace("train_batch_size ............. 128", "")
    beside = GIVEN["deepspeed-0.14.log"] | {"global_batch": "256.0", "devices": "8.0", "experts": "0.0"}
    assert float(_row(text, beside).cells["step_time_s"]) == pytest.approx(256 / 18.11771473, rel=1e-4)


def test_the_log_s_batch_is_the_work_of_its_steps():
    text = text_of("torchtitan-2025-02.log")
    row = run_row(summary_of(text), {"global_batch": 16})
    assert row.cells["step_time_s"] == run_row(summary_of(text), {}).cells["step_time_s"]


def test_no_control_character_of_a_log_reaches_a_row():
    row = _row(_without("use_distributed_optimizer", use_distributed_optimizer="No\x9b\x07"))
    assert "use_distributed_optimizer No" in row.origins["sharding"].words
    texts = [*row.cells.values(), *(origin.words for origin in row.origins.values()), *map(str, row.problems)]
    assert all(text.isprintable() for text in texts)


def test_other_spellings_are_no_contradiction():
    text = text_of("torchtitan-2025-02.log")
    beside = {"model": "meta-llama/Llama-3.1-8B", "device": "H200", "sharding": "zero3", "seq_len": "8192.0"}
    assert not run_row(summary_of(text), beside).problems
    assert not _row(LOG, DEVICE | {"stack": "megatron-core@0.19"}).problems


def test_everything_that_is_missing_is_said_at_once():
    problems = _problems(steps(1, 9), {})
    assert {"seq_len", "device", "devices", "layers", "hidden", "ffn_hidden", "ffn", "heads", "vocab"} <= set(
        problems
    )
    assert "plan" in problems["seq_len"].suggestion


def test_a_rate_without_the_work_of_a_step_asks_for_it():
    text = text_of("deepspeed-0.14.log").replace("train_batch_size ............. 128", "")
    assert "global_batch" in _problems(text, GIVEN["deepspeed-0.14.log"])
    row = _row(text, GIVEN["deepspeed-0.14.log"] | {"global_batch": 256})
    assert float(row.cells["step_time_s"]) == pytest.approx(256 / 18.11771473, rel=1e-4)
    assert row.cells["step_time_origin"].startswith("from samples/s, ")


def test_a_log_of_warm_up_only_makes_no_row_without_a_peak_of_memory():
    assert set(_problems(table(**OPTIONS) + steps(1, 3))) == {"step_time_s"}
    memory = "[Rank 0] (after 2 iterations) memory (MB) | max allocated: 2048.0 | reserved: 4096.0\n"
    row = _row(table(**OPTIONS) + steps(1, 3) + memory)
    assert ("step_time_s" not in row.cells, row.cells["peak_memory_gib"]) == (True, "2")


def test_wrong_given_columns_are_all_refused():
    problems = _problems(
        LOG, {"devise": "x", "tp": "many", "pp": 0, "notes": "two\nlines", "outcome": "fine"}
    )
    assert set(problems) == {"devise", "tp", "pp", "notes", "outcome"}
    assert "device" in problems["devise"].suggestion


def test_empty_given_columns_say_nothing():
    assert _row(LOG, DEVICE | {"tp": "", "pp": None}).cells == _row(LOG).cells


def test_values_that_a_table_cannot_have_are_left_out_with_a_warning():
    row = _row(_without("ffn_hidden_size", ffn_hidden_size=10**30), DEVICE | {"model": "llama-3.1-8b"})
    assert "ffn_hidden" not in row.cells
    assert [problem.field for problem in row.problems] == ["ffn_hidden"]
    modules = {"recompute_granularity": "selective", "recompute_modules": "['moe_act', 'gdn_norm_out']"}
    assert "recompute" not in _row(_without(**modules)).cells


def test_devices_follow_from_the_degrees():
    row = _row(_without("world_size"))
    assert (row.cells["devices"], row.origins["devices"].source) == ("16", "log")


def test_degrees_that_do_not_make_the_devices_are_a_warning():
    (problem,) = _row(_without(world_size=24)).problems
    assert "16 ≠ 24" in problem.rule


def test_a_run_out_of_memory_has_neither_time_nor_peak():
    memory = "[Rank 0] (after 2 iterations) memory (MB) | max allocated: 2048.0 | reserved: 4096.0\n"
    row = _row(LOG + memory + OUT_OF_MEMORY)
    assert row.cells["outcome"] == "oom"
    assert not {"step_time_s", "peak_memory_gib"} & set(row.cells)
    assert "after 6 steps" in row.problems[0].rule


def test_who_says_that_the_run_was_well_is_believed_with_a_warning():
    row = _row(LOG + OUT_OF_MEMORY, DEVICE | {"outcome": "ok"})
    assert (row.cells["outcome"], row.cells["step_time_s"]) == ("ok", "2")
    assert "outcome" in {problem.field for problem in row.problems}


def test_what_no_column_says_is_a_warning_and_a_note():
    row = _row(_without(optimizer_cpu_offload=True, hybrid_layer_pattern="M*"))
    assert len(row.problems) == 2
    assert "host" in row.cells["notes"]


def test_layers_that_predict_further_tokens_are_a_column():
    row = _row(_without(mtp_num_layers=1))
    assert not row.problems
    assert row.cells["next_token_layers"] == "1"
    assert row.origins["next_token_layers"].source == "log"


def test_a_released_model_s_name_says_which_experts_are_shared():
    options = {
        "num_experts": 8,
        "moe_router_topk": 2,
        "moe_shared_expert_intermediate_size": 512,
        "moe_ffn_hidden_size": 64,
    }
    text = _without(**options)
    assert [problem.value for problem in _row(text).problems] == ["shared experts"]
    assert not _row(text, DEVICE | {"model": "deepseek-v3"}).problems


def test_the_name_of_a_run_is_its_settings():
    other = table(**OPTIONS) + steps(1, 20, 2100)
    assert _row(LOG).cells["run_id"] == _row(other).cells["run_id"]
    assert _row(LOG).cells["run_id"] != _row(_without("bf16", fp16=True)).cells["run_id"]
    assert _row(LOG, DEVICE | {"run_id": "mine"}).cells["run_id"] == "mine"


def test_earlier_runs_in_the_file_are_a_warning():
    text = _without("tensor_model_parallel_size", tensor_model_parallel_size=4, data_parallel_size=4) + LOG
    (problem,) = _row(text).problems
    assert "last one" in problem.rule


def _read(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_table_is_what_its_rows_are():
    (read,) = _read(write_rows([_row(LOG).cells]))
    assert {column: cell for column, cell in read.items() if cell} == _row(LOG).cells


def test_rows_are_appended_and_replaced_by_name():
    first = _row(LOG, DEVICE | {"run_id": "a"}).cells
    second, again = dict(first, run_id="b"), dict(first, step_time_s="3")
    written = append_rows(append_rows("", [first, second]), [again, dict(first, run_id="c, d")])
    assert [(row["run_id"], row["step_time_s"]) for row in _read(written)] == [
        ("a", "3"),
        ("b", "2"),
        ("c, d", "2"),
    ]
    assert append_rows(written, [again]) == written
    assert append_rows("run_id,tp\na,1\n,2\na,3\n", [{"run_id": "a", "tp": "4"}]) == "run_id,tp\na,4\n,2\n"


def test_the_header_of_a_table_stays_and_grows_only_where_rows_say_more():
    existing = "mine,run_id,tp\n7,a,1\n"
    same = append_rows(existing, [{"run_id": "b", "tp": "2"}])
    assert same == "mine,run_id,tp\n7,a,1\n,b,2\n"
    more = append_rows(existing, [{"run_id": "b", "tp": "2", "pp": "4"}])
    assert more.splitlines() == ["mine,run_id,tp,pp", "7,a,1,", ",b,2,4"]


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "run_id,tp,tp\nx,1,1\n", "run_id\nx,1,2\n", "\0\0"])
def test_what_is_no_table_of_runs_is_refused(text):
    with pytest.raises(InputError) as error:
        append_rows(text, [{"run_id": "n"}])
    assert error.value.problems[0].field == "runs"


@given(st.text(max_size=80))
@example('"\r')
@settings(max_examples=100, deadline=None)
def test_a_row_is_in_whatever_table_takes_it(text):
    try:
        written = append_rows("run_id,notes\n" + text, [{"run_id": "new", "notes": "x"}])
    except InputError:
        return
    assert {"run_id": "new", "notes": "x"} in _read(written)


def test_a_step_in_the_table_is_one_step():
    assert float(_row(LOG + step(10, 2000)).cells["step_time_s"]) == 2.0
