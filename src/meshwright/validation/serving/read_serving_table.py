"""Read a table of measured serving runs: CSV with a header, one run per line, columns as in docs/serving-accuracy.md.

A table is known by its columns (``is_serving_table``). A run whose inputs cannot be read becomes a ``SkippedRow`` with
the reason. A measured cell that cannot be read counts as not published, so that the prediction is the same without it.
``request_rate`` inf with a concurrency is that closed loop, inf alone the largest batch that fits. A throughput of
input and output together counts with the output's share of the tokens.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from meshwright.cluster.shorthand import MAX_DEVICES
from meshwright.validation.cell_parsers import (
    Cells,
    Reader,
    device,
    one_of,
    positive,
    read_cells,
    whole_number,
)
from meshwright.validation.serving.checkpoint_names import CheckpointName, checkpoint_name
from meshwright.validation.serving.disaggregated_workers import Disaggregated, disaggregated
from meshwright.validation.serving.engine_family import Engine, engine_of
from meshwright.validation.serving.row_layout import Degrees, worker_layouts
from meshwright.validation.serving.serving_row import (
    ServingInputs,
    ServingMeasured,
    ServingRow,
    SkippedRow,
)
from meshwright.validation.table_file import opened_table, read_header
from meshwright.workload.workload import MAX_SEQ_LEN

MILLI = 1e-3
MAX_CONCURRENCY = 10**7
WEIGHTS = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "fp8_block": "fp8-block",
    "fp8-block": "fp8-block",
    "fp4": "fp4",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "int8": "int8",
    "int4": "int4",
    "int4_wo": "int4",
    "uint4": "int4",
}
"""Names of plans for the formats of weights in tables."""
CACHES = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "int8": "int8", "fp4": "fp4", "nvfp4": "fp4"}
"""Names of plans for the formats of caches in tables; both 16-bit ones take the same bytes."""
NAMED_DEVICE = ("nvidia ", "amd instinct ", "amd ")


def _device(text: str) -> str:
    maker = next((name for name in NAMED_DEVICE if text.lower().startswith(name)), "")
    return device(text[len(maker) :])


def _rate(text: str) -> float:
    if text.lower() in ("inf", "infinity"):
        return inf
    return positive(1e9)(text)


_degree = whole_number(0, MAX_DEVICES)
INPUTS: dict[str, Reader] = {
    "model": checkpoint_name,
    "gpu": _device,
    "gpus": whole_number(1, MAX_DEVICES),
    "engine": engine_of,
    "weight_precision": one_of(WEIGHTS),
    "kv_precision": one_of(CACHES),
    "tp": _degree,
    "pp": _degree,
    "dp": _degree,
    "ep": _degree,
    "disagg": disaggregated,
    "isl": whole_number(1, MAX_SEQ_LEN),
    "osl": whole_number(1, MAX_SEQ_LEN),
    "concurrency": whole_number(1, MAX_CONCURRENCY),
    "request_rate": _rate,
}
MEASURED: dict[str, Reader] = {
    "throughput_tok_s": positive(1e12),
    "throughput_kind": one_of(("output", "total")),
    "per_gpu_tok_s": positive(1e9),
    "ttft_ms": positive(1e9),
    "tpot_ms": positive(1e9),
}
IDENTITY = ("id", "source")
NEEDED = ("model", "gpu", "isl", "osl")
LOADS = ("concurrency", "request_rate")
COLUMNS = (*IDENTITY, *INPUTS, *MEASURED)
"""The columns that are read; others are ignored."""


def is_serving_table(path: str | Path) -> bool:
    """Return whether the header of a file has the lengths of requests. Raises InputError if it cannot be opened."""
    with opened_table(path) as lines:
        try:
            header = {name.strip() for name in next(csv.reader(lines), [])}
        except csv.Error:
            return False
    return {"isl", "osl"} <= header


def read_serving_table(path: str | Path) -> Iterator[ServingRow | SkippedRow]:
    """Yield every run of a table, in order. Raises InputError for a file that is not such a table."""
    with opened_table(path) as lines:
        reader = csv.reader(lines)
        header = read_header(reader, str(path), NEEDED, COLUMNS)
        while True:
            try:
                cells = next(reader, None)
            except csv.Error as error:
                yield _skipped({}, reader.line_num, f"cannot be read: {error}")
                continue
            if cells is None:
                return
            if any(cells):
                yield _row(header, cells, reader.line_num)


def _row(header: Sequence[str], cells: Sequence[str], line: int) -> ServingRow | SkippedRow:
    texts = dict(zip(header, cells, strict=False))
    if len(cells) != len(header):
        return _skipped(texts, line, f"has {len(cells)} cells, the header {len(header)}")
    given = read_cells((texts.get(name, "") for name in INPUTS), INPUTS)
    wrong = [*given.wrong, *(f"{name}: not given" for name in NEEDED if not texts.get(name, "").strip())]
    if not _has_load(texts):
        wrong.append("concurrency, request_rate: not given")
    if wrong:
        return _skipped(texts, line, "; ".join(wrong))
    try:
        inputs, remarks = _inputs(given.values)
    except ValueError as error:
        return _skipped(texts, line, str(error))
    measured = read_cells((texts.get(name, "") for name in MEASURED), MEASURED)
    remarks += tuple(f"{fault}; counted as not published" for fault in measured.wrong)
    return ServingRow(
        id=_id(texts, line),
        source=texts.get("source", "").strip(),
        inputs=inputs,
        measured=_measured(measured, inputs, counted=given.values["gpus"]),
        remarks=remarks,
    )


def _inputs(values: dict[str, Any]) -> tuple[ServingInputs, tuple[str, ...]]:
    """Return a run's inputs, with remarks. Raises ValueError for a layout that the device count contradicts."""
    model: CheckpointName = values["model"]
    engine: Engine = values["engine"] or engine_of("")
    degrees = Degrees(**{name: values[name] or None for name in ("tp", "pp", "dp", "ep")})
    pools: Disaggregated | None = values["disagg"]
    layouts = worker_layouts(model.model, values["gpu"], values["gpus"], degrees, pools)
    rate = values["request_rate"]
    inputs = ServingInputs(
        model=model.model,
        device=values["gpu"],
        devices=values["gpus"] or sum(one.devices for one in layouts.workers),
        engine=engine.family,
        release=engine.release,
        weights=values["weight_precision"] or model.weights,
        kv=values["kv_precision"] or model.kv,
        workers=layouts.workers,
        input_tokens=values["isl"],
        output_tokens=values["osl"],
        concurrency=values["concurrency"],
        rate_per_s=None if rate == inf else rate,
    )
    return inputs, layouts.remarks


def _measured(cells: Cells, inputs: ServingInputs, counted: int | None) -> ServingMeasured:
    """Return what was measured. ``counted``: devices whose throughput it is; None: unknown."""
    values = {name: cells.values.get(name) for name in MEASURED}
    rate = values["per_gpu_tok_s"]
    if rate is None and counted is not None and values["throughput_tok_s"] is not None:
        rate = values["throughput_tok_s"] / counted
    if rate is not None and values["throughput_kind"] == "total":
        rate *= inputs.output_tokens / (inputs.input_tokens + inputs.output_tokens)
    ttft, tpot = (None if ms is None else ms * MILLI for ms in (values["ttft_ms"], values["tpot_ms"]))
    measured = ServingMeasured(ttft_s=ttft, tpot_s=tpot, output_tokens_per_s_per_device=rate)
    return measured if inputs.output_tokens > 1 else replace(measured, tpot_s=None)


def _has_load(texts: dict[str, str]) -> bool:
    return any(texts.get(name, "").strip() for name in LOADS)


def _id(texts: dict[str, str], line: int) -> str:
    return texts.get("id", "").strip() or f"line {line}"


def _skipped(texts: dict[str, str], line: int, reason: str) -> SkippedRow:
    complete = all(texts.get(name, "").strip() for name in NEEDED) and _has_load(texts)
    return SkippedRow(
        id=_id(texts, line), source=texts.get("source", "").strip(), reason=reason, complete=complete
    )
