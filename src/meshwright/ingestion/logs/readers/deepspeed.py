"""Read DeepSpeed's log: the engine's throughput timer, the pipeline engine, the configuration.

Lines that are read, with the releases that print them in this form:

    epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=…, CurrSamplesPerSec=25.7, MemAllocated=…   0.8 on
    0/20, RunningAvgSamplesPerSec=…, CurrSamplesPerSec=…, MemAllocated=…GB, MaxMemAllocated=15.06GB           0.7
    0/20, SamplesPerSec=…, MemAllocated=…GB, MaxMemAllocated=…GB; 0/20, SamplesPerSec=…                       to 0.6
    steps: 10 loss: 5.2341 iter time (s): 1.234 samples/sec: 25.932                                  pipeline engine
    MA 4.3 GB         Max_MA 4.3 GB         CA …                                                     see_memory_usage
    DeepSpeed info: version=0.14.0, git-hash=…                                                       all
    [config.py:1000:print]   zero_optimization_stage ...... 3                                        all
    RANK=0 STAGE=0 LAYERS=4 [0, 4) …                                                                 pipeline engine

Source: deepspeedai/DeepSpeed, ``utils/timer.py`` at v0.3.10, v0.5.0, v0.6.0, v0.7.0, v0.8.0, v0.14.0, v0.19.5;
``runtime/config.py``, ``runtime/pipe/engine.py``, ``runtime/utils.py`` at v0.19.5. Samples per second are of all ranks
and of the last step (of all steps so far to 0.6), from the forward pass to the end of the optimizer: reading data lies
outside. Memory in GB is GiB. ``world_size`` is the number of data-parallel ranks. The model, its sequence length and
recomputation are the program's own and in no line.
"""

import re
from collections.abc import Iterator

from meshwright.frameworks.importing.imported_file import Fact
from meshwright.ingestion.logs.events import (
    Cells,
    Event,
    Restart,
    Setting,
    Settings,
    Step,
    duration,
    first_text,
    peak,
    seconds_per_unit,
    whole_number,
)
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.units import GIB

RATE = r"(\d{1,9}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)"
TIMER = re.compile(
    rf"(?:global_step=|\d/)(\d{{1,12}}), (?:RunningAvgSamplesPerSec=[^,]{{1,40}}, Curr)?"
    rf"SamplesPerSec={RATE}(?=, Mem|\s*$)"
)
PIPELINE = re.compile(rf"steps: (\d{{1,12}}) loss: .{{1,200}}?iter time \(s\): {RATE} samples/sec: ")
PEAK = re.compile(r"(?:MaxMemAllocated=|Max_MA )(\d{1,6}(?:\.\d{1,2})?) ?GB")
VERSION = re.compile(r"DeepSpeed info: version=(\d{1,4}(?:\.[\w+]{1,20}){1,5}), ")
OPTION = re.compile(r"config\.py:\d{1,6}:print\] {1,4}([a-z_]\w{1,60})(?: \.{1,40} |  )")
STAGE = re.compile(r"RANK=\d{1,7} STAGE=(\d{1,5}) LAYERS=\d{1,5} ")
OPTIONS_READ = frozenset(
    (
        *(
            "train_batch_size",
            "train_micro_batch_size_per_gpu",
            "world_size",
            "zero_optimization_stage",
            "zero_config",
        ),
        *("fp16_enabled", "bfloat16_enabled", "float16_config", "bfloat16_config", "tensor_parallel_config"),
    )
)
PRECISIONS = {"bf16": ("bfloat16_enabled", "bfloat16_config"), "fp16": ("fp16_enabled", "float16_config")}


class Deepspeed:
    """Reader of the lines of DeepSpeed's engines."""

    looked_for = "global_step=10, RunningAvgSamplesPerSec=25.02, CurrSamplesPerSec=25.70, MemAllocated="

    def events(self, line: str) -> Iterator[Event]:
        """Yield steps with their memory, options, starts."""
        if "SamplesPerSec=" in line or "samples/sec: " in line:
            yield from _steps(line)
        if "MaxMemAllocated=" in line or "Max_MA " in line:
            for amount in PEAK.findall(line):
                yield from peak(amount, GIB, "allocated")
        elif ":print]" in line:
            if (match := OPTION.search(line)) and match[1] in OPTIONS_READ:
                yield Setting(match[1], line[match.end() :].strip())
        elif "STAGE=" in line and (match := STAGE.search(line)):
            yield Setting(f"stage {match[1]}", match[1])
        elif "DeepSpeed info: version=" in line:
            yield Restart()
            if match := VERSION.search(line):
                yield Setting("release", match[1])

    def cells(self, settings: Settings) -> Cells:
        """Return the columns of the configuration."""
        return dict(_cells(settings)) if settings else {}


def _steps(line: str) -> Iterator[Event]:
    for match in TIMER.finditer(line):
        seconds = seconds_per_unit(match[2])
        if seconds is not None:
            yield Step(iteration=int(match[1]), pace_s=seconds, unit="sample")
    for match in PIPELINE.finditer(line):
        seconds = duration(match[2])
        if seconds is not None:
            yield Step(iteration=int(match[1]), pace_s=seconds)


def _cells(settings: Settings) -> Iterator[tuple[str, Fact]]:
    yield "stack", Fact("deepspeed", "DeepSpeed's lines")
    if release := first_text(settings, "release"):
        yield "release", Fact(release, f"version={release}")
    numbers = {
        "global_batch": "train_batch_size",
        "micro_batch": "train_micro_batch_size_per_gpu",
        "dp": "world_size",
    }
    for column, name in numbers.items():
        if value := whole_number(settings, name):
            yield column, Fact(str(value), f"{name} {value}")
    stage = settings.get("zero_optimization_stage", "")
    if stage in ("0", "1", "2", "3"):
        yield "sharding", Fact(SHARDINGS[int(stage)], f"zero_optimization_stage {stage}")
    for precision, names in PRECISIONS.items():
        if any(settings.get(name) == "True" or "enabled=True" in settings.get(name, "") for name in names):
            yield "precision", Fact(precision, f"{names[0]} True")
    stages = [int(name.removeprefix("stage ")) for name in settings if name.startswith("stage ")]
    if stages:
        yield "pp", Fact(str(max(stages) + 1), f"STAGE={max(stages)} is the last")
    yield from _parallel(settings)


def _parallel(settings: Settings) -> Iterator[tuple[str, Fact]]:
    """Yield shard groups, tensor parallelism and offloading, from the text of the configuration's parts."""
    zero, tensor = settings.get("zero_config", ""), settings.get("tensor_parallel_config", "")
    for name in ("zero_hpz_partition_size", "mics_shard_size"):
        match = re.search(rf"\b{name}=(\d{{1,7}})\b", zero)
        if match and int(match[1]) > 1:
            yield "shard_group", Fact(match[1], f"{name}={match[1]}")
    if (match := re.search(r"\bautotp_size=(\d{1,5})\b", tensor)) and int(match[1]) > 1:
        yield "tp", Fact(match[1], f"autotp_size={match[1]}")
    if re.search(r"\boffload_\w+=DeepSpeedZeroOffload\w+Config\(device='(?:cpu|nvme)'", zero):
        yield "notes", Fact("states or parameters are kept in the host's memory", "zero_config with offload")
