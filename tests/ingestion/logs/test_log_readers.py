"""Every reader on logs in the form of its framework's releases."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import BANNER, NAMES, SAMPLES, step, summary_of, table, text_of

from meshwright.ingestion.device_names import device_of
from meshwright.ingestion.logs.events import Memory, Restart, Setting, Step
from meshwright.ingestion.logs.readers import READERS
from meshwright.units import GIB

EXPECTED = {
    "deepspeed-0.14.log": (
        "deepspeed",
        128 / 18.11771473,
        44.5,
        "stack=deepspeed release=0.14.4 dp=8 sharding=zero3",
    ),
    "deepspeed-0.3.log": ("deepspeed", 64 / 71.997, None, "precision=fp16 sharding=zero2 micro_batch=8"),
    "deepspeed-pipeline-0.15.log": ("deepspeed", 0.509, None, "pp=4 dp=1 precision=fp16 sharding=none"),
    "megatron-bridge-0.3.log": (
        "megatron",
        20.2147,
        59.411e9 / GIB,
        "stack=megatron-bridge tp=4 pp=8 virtual_stages=5 schedule=interleaved-1f1b precision=fp8 sharding=zero1"
        " global_batch=256 layers=80 ffn_hidden=28672 kv_heads=8 recompute=none tied_embeddings=false",
    ),
    "megatron-core-0.11.log": (
        "megatron",
        16.9901,
        21039.58349609375 / 1024,
        "stack=megatron-core devices=4 tp=4 sequence_parallel=true ffn=swiglu vocab=50688 recompute=selective"
        " sharding=zero1 precision=bf16 comm_overlap=none attention=flash kv_heads=24 schedule=none",
    ),
    "megatron-core-0.6.log": (
        "megatron",
        5.7063,
        54250.98583984375 / 1024,
        "experts=8 experts_per_token=2 ep=8 etp=1 ffn_hidden=14336 kv_heads=8 recompute=none devices=16",
    ),
    "megatron-deepspeed-2024.log": (
        "megatron",
        14.31735,
        19.52,
        "stack=megatron-deepspeed-2022 release=0.13.1 sharding=zero2 devices=48 dp=24 tp=2 recompute=full",
    ),
    "megatron-lm-2.6.log": (
        "megatron",
        3.5288,
        49021.89111328125 / 1024,
        "stack=megatron-lm-2021 recompute=full ffn=gelu tied_embeddings=true sequence_parallel=false vocab=50304"
        " precision=fp16 attention=fused-softmax sharding=none micro_batch=16",
    ),
    "meshwright.jsonl": (
        "meshwright",
        2.4,
        51_000_007_000 / GIB,
        "model=llama-3.1-8b shard_group=4 devices=16",
    ),
    "nemo-1.log": ("nemo", 11.3, None, "stack=nemo"),
    "nemo-2.log": ("nemo", 6.071, 115792977920 / GIB, "stack=nemo dp=8 tp=1 pp=1 cp=1 global_batch=128"),
    "torchtitan-0.2.0.log": (
        "torchtitan",
        64 * 2048 / 8 / 338287,
        1.34,
        "devices=8 sharding=fsdp micro_batch=8 ffn_hidden=768 kv_heads=16 recompute=selective device=h200-sxm-141gb",
    ),
    "torchtitan-0.2.2.log": (
        "torchtitan",
        64 * 8192 / 32 / 5619,
        36.93,
        "devices=32 sharding=hsdp shard_group=4 schedule=interleaved-1f1b virtual_stages=2 micro_batch=1"
        " recompute=full",
    ),
    "torchtitan-2025-02.log": (
        "torchtitan",
        8 * 8192 / 8 / 7046.5,
        49.59,
        "model=llama3~8B ffn_hidden=14336 kv_heads=8 vocab=128256 devices=8 dp=8 global_batch=8 seq_len=8192",
    ),
    "torchtitan-2026-08.log": (
        "torchtitan",
        128 * 8192 / 64 / 2510,
        148.02,
        "global_batch=128 micro_batch=2 precision=fp8 recompute=full device=b200 release=0.3.0 devices=64",
    ),
}
"""Reader, seconds of a step, GiB at the peak, and some of the columns."""


def _peak(summary):
    return summary.peaks_gib.get("max allocated", summary.peaks_gib.get("max reserved"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_log_gives_step_time_memory_and_settings(name):
    reader, seconds, gib, columns = EXPECTED[name]
    summary = summary_of(text_of(name))
    assert (summary.reader, summary.out_of_memory, summary.restarts) == (reader, False, 0)
    assert summary.step_time_s == pytest.approx(seconds, rel=2e-4) or _waits_for_work(summary, seconds)
    assert _peak(summary) == (gib and pytest.approx(gib))
    pairs = dict(pair.replace("~", " ").split("=") for pair in columns.split())
    assert {column: summary.cells[column].value for column in pairs} == pairs


def _waits_for_work(summary, seconds):
    """A rate whose batch is known, or seconds."""
    return summary.step_time_s is None and summary.timing.median_s == pytest.approx(seconds, rel=2e-4)


def test_every_sample_is_expected_and_described():
    described = set(
        re.findall(r"(?m)^\| `([\w.-]+)` \|", (SAMPLES / "README.md").read_text(encoding="utf-8"))
    )
    assert set(NAMES) == described == {*EXPECTED, "out-of-memory.log"}


def test_every_reader_has_a_sample_whose_steps_or_settings_it_reads():
    for name, reader in READERS.items():
        lines = [line.rstrip("\n") for sample in EXPECTED for line in re.split("[\r\n]", text_of(sample))]
        kinds = {type(event) for line in lines for event in reader.events(line)}
        assert {Step, Restart} <= kinds, name
        assert reader.cells({}) == {}, name


def test_every_cell_says_in_which_words_the_log_has_it():
    for name in EXPECTED:
        assert all(fact.words for fact in summary_of(text_of(name)).cells.values()), name


def test_a_step_of_one_framework_is_not_read_by_another():
    for sample, (owner, *_) in EXPECTED.items():
        families = {owner, *(("megatron-bridge", "deepspeed") if owner == "megatron" else ())}
        for name in set(READERS) - families:
            events = [e for line in re.split("[\r\n]", text_of(sample)) for e in READERS[name].events(line)]
            assert not [event for event in events if isinstance(event, Step)], (sample, name)


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_no_line_breaks_a_reader(line):
    for reader in READERS.values():
        assert all(event is not None for event in reader.events(line))


@given(st.sampled_from(NAMES), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_no_damaged_line_breaks_a_reader(name, random):
    lines = text_of(name).replace("\r", "\n").split("\n")
    line = random.choice(lines)
    cut = random.randrange(len(line) + 1)
    damaged = (
        line[:cut] + random.choice(("", "\x00", "9" * 40, "[{", "=", random.choice(lines))) + line[cut + 1 :]
    )
    for reader in READERS.values():
        for event in reader.events(damaged):
            if isinstance(event, Step):
                assert 0 < event.pace_s < 1e8


@pytest.mark.parametrize("name", list(READERS))
def test_settings_of_any_text_make_cells_of_text(name):
    keys = {
        event.key
        for sample in EXPECTED
        for line in re.split("[\r\n]", text_of(sample))
        for event in READERS[name].events(line)
        if isinstance(event, Setting)
    }
    for value in (
        "",
        "None",
        "-1",
        "0",
        "1e400",
        "nan",
        "True",
        "[1, 2",
        "'core_attn'",
        "8.0",
        "x" * 5000,
        "٣",
    ):
        cells = READERS[name].cells(dict.fromkeys(keys, value))
        assert all(isinstance(fact.value, str) for fact in cells.values())


def test_seconds_stand_above_rates():
    timer = "global_step={0}, RunningAvgSamplesPerSec=9.0, CurrSamplesPerSec=9.0, MemAllocated=1.0GB\n"
    pipeline = "steps: {0} loss: 9.1 iter time (s): 2.000 samples/sec: 8.000\n"
    summary = summary_of("".join((timer + pipeline).format(number) for number in range(1, 9)))
    assert (summary.unit, summary.step_time_s) == ("step", 2.0)


def test_two_records_on_one_line_are_both_read():
    line = step(5, 1100.0).rstrip("\n") + step(6, 1200.0)
    found = [event.iteration for event in READERS["megatron"].events(line) if isinstance(event, Step)]
    assert found == [5, 6]


@pytest.mark.parametrize(
    "time", ["iteration (s): 105.22 |", "iteration (ms): 105220.0/104000.3 |", "iteration (ms): 105220 |"]
)
def test_forks_of_megatron_write_the_time_in_other_ways(time):
    line = f"[default7]: iteration    12695/  115311 | consumed samples:      9841584 | elapsed time per {time} lr"
    (found,) = [event for event in READERS["megatron"].events(line) if isinstance(event, Step)]
    assert found.pace_s == pytest.approx(105.22)


def test_a_record_that_another_one_cuts_off_is_not_completed_by_it():
    line = step(5)[:90].rstrip("\n") + step(6, 1200.0)
    (found,) = [event for event in READERS["megatron"].events(line) if isinstance(event, Step)]
    assert (found.iteration, found.pace_s) == (6, pytest.approx(1.2))


def test_a_time_that_is_cut_off_is_not_read():
    line = step(5, 1234.5)
    cut = line[: line.index("1234.5") + 3]
    assert not list(READERS["megatron"].events(cut))


def test_validation_lines_of_torchtitan_are_no_steps():
    line = "[titan] 2026-02-24 - root - INFO - validate step: 10  loss:  7.1000  memory: 30.00GiB(37.50%)  tps: 9,000"
    assert not [event for event in READERS["torchtitan"].events(line) if isinstance(event, Step)]


def test_megatron_counts_mebibytes_and_bridge_decimal_gigabytes():
    mebi = (
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated: 2048.00 | reserved: 2.00"
    )
    decimal = (
        "[Rank 0] (after 2 iterations) memory (GB) | mem-max-allocated-gigabytes: 2.0 | mem-alloc-retires: 0"
    )
    assert list(READERS["megatron"].events(mebi)) == [Memory(2.0, "max allocated")]
    assert list(READERS["megatron"].events(decimal)) == [Memory(pytest.approx(2e9 / GIB), "max allocated")]


def test_experts_without_a_degree_of_their_own_are_cut_as_the_rest():
    options = {"num_experts": 8, "moe_router_topk": 2, "tensor_model_parallel_size": 4, "num_layers": 2}
    assert summary_of(table(**options) + step(1)).cells["etp"].value == "4"


@pytest.mark.parametrize(
    ("options", "column", "expected"),
    [
        (
            {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params"},
            "sharding",
            "zero3",
        ),
        ({"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads"}, "sharding", "zero2"),
        ({"use_torch_fsdp2": True, "use_distributed_optimizer": False}, "sharding", "zero3"),
        (
            {"recompute_granularity": "selective", "recompute_modules": "['core_attn']"},
            "recompute",
            "selective",
        ),
        (
            {"recompute_granularity": "selective", "recompute_modules": "['moe_act', 'mlp']"},
            "recompute",
            "moe_act mlp",
        ),
        ({"recompute_granularity": "full", "recompute_method": "uniform"}, "recompute", "full"),
        ({"bf16": True, "fp8": "e4m3", "fp8_recipe": "mxfp8"}, "precision", "mxfp8"),
        ({"bf16": True, "fp4": "e2m1"}, "precision", "nvfp4"),
        ({"bf16": False, "fp16": False}, "precision", "fp32"),
        ({"multi_latent_attention": True, "kv_channels": 128}, "head_dim", "mla"),
        (
            {"attention_backend": "AttnBackend.unfused", "masked_softmax_fusion": True},
            "attention",
            "fused-softmax",
        ),
        ({"squared_relu": True, "swiglu": False}, "ffn", "relu2"),
        ({"data_parallel_size": 8, "num_distributed_optimizer_instances": 2}, "shard_group", "4"),
        ({"DDP_impl": "local", "sequence_parallel": True}, "stack", "megatron-lm-2022"),
    ],
)
def test_options_of_megatron_are_columns(options, column, expected):
    summary = summary_of(table(num_layers=4, num_attention_heads=8, **options) + step(1))
    assert summary.cells[column].value == expected


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({"pipeline_model_parallel_size": 4}, "2*3 3"),
        ({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2}, "2*3 3"),
        ({"pipeline_model_parallel_size": 1}, None),
        ({"pipeline_model_parallel_size": 4, "decoder_first_pipeline_num_layers": 1}, None),
        ({"pipeline_model_parallel_size": 4, "mtp_num_layers": None}, None),
        ({"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Et*3|t*5mL"}, "3 6"),
        ({"pipeline_model_parallel_layout": "Et*3|t*5L", "mtp_num_layers": None}, "3 5"),
        ({"pipeline_model_parallel_layout": "E|t*8mL"}, None),
    ],
)
def test_layers_of_unequal_stages_are_a_column(options, held):
    summary = summary_of(table(**({"num_layers": 8, "mtp_num_layers": 1} | options)) + step(1))
    cell = summary.cells.get("stage_layers")
    assert (cell and cell.value) == held


@pytest.mark.parametrize(
    ("options", "remark"),
    [
        ({"decoder_first_pipeline_num_layers": 3}, "unequal"),
        ({"pipeline_model_parallel_layout": "Et*3|t*4L"}, "unequal"),
        (
            {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 2},
            "2 layers",
        ),
        ({"optimizer_cpu_offload": True}, "host"),
        ({"num_experts": 8, "moe_shared_expert_intermediate_size": 512}, "shared experts"),
        ({"hybrid_layer_pattern": "M*M*"}, "several kinds"),
    ],
)
def test_what_no_column_says_is_a_remark(options, remark):
    assert remark in summary_of(table(num_layers=8, **options) + step(1)).cells["notes"].value


def test_torchtitan_of_2024_is_read():
    lines = (
        "[rank0]:2024-07-30 10:00:00,000 - root - INFO - GPU capacity: NVIDIA H100 (0) with 95.04GiB memory\n"
        "[rank0]:2024-07-30 10:00:00,001 - root - INFO - Building 2-D device mesh with ['dp', 'tp'], [8, 4]\n"
    )
    form = "[rank0]:2024 - root - INFO - step: {:2}  loss: 10.8121  memory: 46.75GiB(49.19%)  wps: {}  mfu: 38.12%\n"
    summary = summary_of(lines + "".join(form.format(number, "5,120") for number in range(1, 9)))
    cells = {column: summary.cells[column].value for column in ("dp", "tp", "devices", "device", "sharding")}
    assert cells == {
        "dp": "8",
        "tp": "4",
        "devices": "32",
        "device": "h100-sxm-96gb-500w",
        "sharding": "fsdp",
    }
    assert summary.timing.median_s == pytest.approx(1 / 5120)


def test_a_mesh_of_experts_is_the_mesh_of_data():
    names = "['dp_shard_mod_ep', 'dp_shard_in_ep', 'tp'], [4, 2, 2]"
    line = f"[titan] 2025-08-01 10:00:00,001 - root - INFO - Building 3-D device mesh with {names}\n"
    (found,) = [
        dict(READERS["torchtitan"].cells({e.key: e.value for e in READERS["torchtitan"].events(line[:-1])}))
    ]
    assert (found["dp"].value, found["devices"].value) == ("8", "16")


def test_a_driver_s_name_is_a_device_and_memory_tells_two_of_one_name():
    assert device_of("NVIDIA H100 80GB HBM3", 79.18) == "h100-sxm-80gb"
    assert device_of("NVIDIA H100", 95.04) == "h100-sxm-96gb-500w"
    assert device_of("NVIDIA A100-SXM4-80GB", 79.15) == "a100-sxm-80gb"
    assert device_of("AMD Instinct MI300X", 191.98) == "mi300x"
    assert device_of("NVIDIA H200", 79.0) is None
    assert device_of("Voodoo2", 0.01) is None


def test_a_banner_alone_is_a_start():
    assert list(READERS["megatron"].events(BANNER.rstrip("\n"))) == [Restart()]
