"""Read torchtitan's log: metrics, the mesh, the model, the applied techniques.

Lines that are read, with the releases that print them in this form:

    step: 10  loss: …  grad_norm: …  memory: 49.59GiB(35.46%)  tps: 7,026  tflops: …  mfu: …     tps since Feb 2025
    step: 10  loss: …  memory: …  wps: 7,026  mfu: …                                             2024
    Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1    0.2.1 on
    Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]                                     to 0.2.0
    CUDA capacity: NVIDIA H100 80GB HBM3 with 79.18GiB memory                                    all
    Building llama3 8B with TransformerModelArgs(dim=4096, n_layers=32, …)                       0.1, 0.2.0
    Model llama3 8B size: 8,030,261,248 total parameters                                         all
    Applied full activation checkpointing to the model; Applied FullAC activation …              all
    Using pipeline schedule Interleaved1F1B with 8 microbatches and 8 stages.                    all
    Trainer is initialized with local batch size 1, global batch size 8, …, sequence length 8192   0.1 to 0.2.2
    Training starts at step 1, with local batch size 1, global batch size 8, sequence length 8192  2024
    Trainer is initialized with 8192 tokens per DP rank, 65536 tokens per train step, …          Aug 2026

Source: pytorch/torchtitan at v0.1.0, v0.2.0, v0.2.2 and b5bcd76 (2026-08-21): ``components/metrics.py``,
``distributed/parallel_dims.py``, ``distributed/pipeline_parallel.py``, ``train.py``, ``trainer.py``. tps is tokens per
second of one device, a mean since the last line; memory is what the allocator reserved at most since then.
"""

import re
from collections.abc import Iterator

from meshwright.ingestion.logs.events import (
    Cells,
    Event,
    Restart,
    Setting,
    Settings,
    Step,
    peak,
    seconds_per_unit,
)
from meshwright.ingestion.logs.readers.torchtitan_columns import AXES, torchtitan_columns
from meshwright.units import GIB

STEP = re.compile(
    r"(?<!validate )step:\s{1,12}(\d{1,12})  loss:(?:(?!step:).){1,200}?memory:\s{1,6}(\d{1,6}\.\d{1,2})GiB"
    r"(?:(?!step:).){1,60}?[tw]ps:\s{1,8}([\d,]{1,15})  (?=tflops|mfu)"
)
MESH = re.compile(r"Building device mesh with parallelism: (.{5,200})")
DEGREE = re.compile(r"\b([a-z_]{2,12})=(\d{1,7})\b")
OLD_MESH = re.compile(r"Building \d-D device mesh with \[([\w', ]{2,120})\], \[([\d, ]{1,80})\]")
CAPACITY = re.compile(r"[A-Z]{3,4} capacity: (\S.{1,60}?) (?:\(\d{1,3}\) )?with (\d{1,5}\.\d{1,2})GiB memory")
MODEL = re.compile(r"Model (\S{1,60}) (\S{1,60})\s{1,4}size: [\d,]{1,20} total parameters")
SHAPE = re.compile(r"Building \S{1,60} \S{1,60} with \w{0,40}Args\(")
SHAPE_LENGTH = 4000
FIELD = re.compile(r"\b(\w{2,40})=([^,()]{1,40})(?=[,)]|$)")
APPLIED = re.compile(r"Applied (\w{2,20}) activation checkpointing to the model")
DATA_PARALLEL = re.compile(r"Applied (FSDP|HSDP|DDP) to the model")
SCHEDULE = re.compile(
    r"Using pipeline schedule (\w{2,40}) with (\d{1,7}) microbatches and (\d{1,5}) stages\."
)
BATCH = re.compile(
    r"local batch size (\d{1,9}), global batch size (\d{1,9}), .{0,60}?sequence length (\d{1,9}), total steps "
)
TOKENS = re.compile(
    r"(\d{1,15}) tokens per DP rank, (\d{1,15}) tokens per train step, .{0,60}?maximum context length (\d{1,9}), "
)
VERSION = re.compile(r"torchtitan version: (\d{1,4}(?:\.\w{1,12}){1,4}) ")
CONVERTERS = {
    "Float8 tensorwise scaled training active": "fp8",
    "Swapped to Float8Linear layers": "fp8",
    "MX training active with recipe mxfp8": "mxfp8",
    "Float8 training active with recipe mxfp8": "mxfp8",
    "Converted Linear layers to MXFP8Linear": "mxfp8",
    "Converted Linear layers to NVFP4Linear": "nvfp4",
}
"""Precision of matrix products by the text of converter lines."""
STARTS = ("Starting job: ", "torchtitan version: ")


class Torchtitan:
    """Reader of torchtitan's log lines."""

    looked_for = "step: 10  loss:  9.8821  memory: 49.59GiB(35.46%)  tps: 7,026  tflops: …"

    def events(self, line: str) -> Iterator[Event]:
        """Yield steps with their memory, settings, starts."""
        if "step: " in line:
            yield from _steps(line)
        elif any(start in line for start in STARTS):
            yield Restart()
            if match := VERSION.search(line):
                yield Setting("release", match[1])
        elif "uilding " in line:
            yield from _building(line)
        elif any(words in line for words in CONVERTERS):
            yield from (Setting("precision", name) for words, name in CONVERTERS.items() if words in line)
        elif " with " in line:
            yield from _figures(line)
        elif "Applied " in line or "Model " in line:
            yield from _words(line)

    def cells(self, settings: Settings) -> Cells:
        """Return the columns of the mesh, the model and the applied techniques."""
        return torchtitan_columns(settings)


def _steps(line: str) -> Iterator[Event]:
    for match in STEP.finditer(line):
        seconds = seconds_per_unit(match[3])
        yield from peak(match[2], GIB, "reserved")
        if seconds is not None:
            yield Step(iteration=int(match[1]), pace_s=seconds, unit="token of a device")


def _building(line: str) -> Iterator[Event]:
    if match := MESH.search(line):
        yield from (Setting(name, degree) for name, degree in DEGREE.findall(match[1]) if name in AXES)
    elif match := OLD_MESH.search(line):
        names, sizes = re.findall(r"\w+", match[1]), re.findall(r"\d+", match[2])
        yield Setting("mesh", f"{match[1]} {match[2]}")
        yield from (Setting(name, size) for name, size in zip(names, sizes, strict=False))
    elif match := SHAPE.search(line):
        fields = FIELD.findall(line[match.end() : match.end() + SHAPE_LENGTH])
        yield from (Setting(f"model.{name}", value) for name, value in fields)


def _figures(line: str) -> Iterator[Event]:
    if match := CAPACITY.search(line):
        yield Setting("device", match[1])
        yield Setting("capacity", match[2])
    elif match := SCHEDULE.search(line):
        names = ("schedule", "microbatches", "stages")
        yield from (Setting(*pair) for pair in zip(names, match.groups(), strict=True))
    elif match := BATCH.search(line):
        names = ("local batch", "global batch", "seq_len")
        yield from (Setting(*pair) for pair in zip(names, match.groups(), strict=True))
    elif match := TOKENS.search(line):
        names = ("local tokens", "global tokens", "seq_len")
        yield from (Setting(*pair) for pair in zip(names, match.groups(), strict=True))


def _words(line: str) -> Iterator[Event]:
    if match := APPLIED.search(line):
        yield Setting("checkpointing", match[1])
    elif match := DATA_PARALLEL.search(line):
        yield Setting("data parallel", match[1])
    elif match := MODEL.search(line):
        yield Setting("model", f"{match[1]} {match[2]}")
