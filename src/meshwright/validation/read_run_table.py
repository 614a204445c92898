"""Read a table of measured runs: CSV with a header, one run per line, columns as in docs/accuracy.md.

The file is read as a stream. A run has what was *given* (model, machine, workload, software), what was *chosen* (the
plan) and what was *measured*. Equal cells make equal objects: a million runs of few settings are few
``SettingColumns``. A line that cannot be read becomes a ``Skipped`` with the reason; a file that is not such a table is
an InputError.
"""

import csv
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from meshwright.cluster.shorthand import MAX_DEVICES
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.forms.short import MAX_DEGREE, Axis, Recompute
from meshwright.plans.forms.spellings import SHARDINGS as SHARDING_SPELLINGS
from meshwright.validation.cell_parsers import (
    FLAGS,
    Reader,
    Schedule,
    device,
    device_of,
    nearest_of,
    one_of,
    positive,
    rank_order,
    read_cells,
    recompute,
    schedule,
    stage_layers,
    synchronous_norm,
    whole_number,
)
from meshwright.validation.table_file import opened_table, read_header
from meshwright.workload.fp8_recipe import FP8_RECIPES, OTHER_PRECISIONS
from meshwright.workload.workload import MAX_GLOBAL_BATCH, MAX_SEQ_LEN, PRECISIONS

MAX_LAYERS = 4096
MAX_WIDTH = 2**20
DISPATCHERS = {"all-to-all": False, "once": True}
"""Forms of token dispatch: a copy for each expert, or one for each node and rank."""
PRECISION_WORDS = {name: (name, None) for name in PRECISIONS} | OTHER_PRECISIONS
"""Precision and recipe by the words of a table."""
LATENT = 0
"""``head_dim`` of latent attention: the model's own configuration has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingColumns:
    """The part of a run that was given. None if the table does not have it."""

    model: str | None
    layers: int | None
    hidden: int | None
    ffn_hidden: int | None
    ffn: str | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    vocab: int | None
    experts: int | None
    experts_per_token: int | None
    next_token_layers: int | None
    tied_embeddings: bool | None
    task: str | None
    seq_len: int
    global_batch: int
    precision: str | None
    fp8_recipe: str | None
    device: str
    devices: int
    devices_per_node: int | None
    scaleup_domain: int | None
    node_nic_gbit_per_s: float | None
    stack: str | None
    release: str | None
    attention: str | None
    fused_norm: bool | None
    loss_logits: str | None
    comm_overlap: str | None
    expert_dispatch: str | None
    expert_overlap: bool | None
    synchronous_norm: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanColumns:
    """The plan of a run in the table. None if the table does not have it."""

    micro_batch: int | None
    tp: int | None
    sequence_parallel: bool | None
    pp: int | None
    virtual_stages: int | None
    schedule: Schedule | None
    vocab_parallel: str | None
    cp: int | None
    ep: int | None
    etp: int | None
    dp: int | None
    sharding: str | None
    shard_group: int | None
    recompute: Recompute | None
    stage_layers: tuple[int, ...] | None
    rank_order: tuple[Axis, ...] | None


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run. Seconds per step, GiB at the peak; None if not published.

    ``remarks``: what was guessed of words that nobody knows.
    """

    line: int
    run_id: str
    source: str
    given: SettingColumns
    chosen: PlanColumns
    outcome: str
    step_time_s: float | None
    memory_gib: float | None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A run that is not predicted, and the reason."""

    line: int
    run_id: str
    source: str
    reason: str


def _text(text: str) -> str:
    return text


_degree = whole_number(1, MAX_DEGREE)
_width = whole_number(1, MAX_WIDTH)
_few = whole_number(1, 2**16)


def _head_dim(text: str) -> int:
    return LATENT if text.lower() == "mla" else _few(text)


GIVEN: dict[str, Reader] = {
    "model": _text,
    "layers": whole_number(1, MAX_LAYERS),
    "hidden": _width,
    "ffn_hidden": _width,
    "ffn": one_of(("gelu", "swiglu", "relu2", "geglu", "relu")),
    "heads": _few,
    "kv_heads": _few,
    "head_dim": _head_dim,
    "vocab": whole_number(1, 2**24),
    "experts": whole_number(0, 2**16),
    "experts_per_token": whole_number(0, 2**10),
    "next_token_layers": whole_number(0, 2**6),
    "tied_embeddings": one_of(FLAGS),
    "task": str.lower,
    "seq_len": whole_number(1, MAX_SEQ_LEN),
    "global_batch": whole_number(1, MAX_GLOBAL_BATCH),
    "precision": nearest_of(PRECISION_WORDS),
    "fp8_recipe": nearest_of({"none": None, **{name: name for name in FP8_RECIPES}}),
    "device": device,
    "devices": whole_number(1, MAX_DEVICES),
    "devices_per_node": whole_number(1, 2**12),
    "scaleup_domain": whole_number(1, 2**12),
    "node_nic_gbit_per_s": positive(1e6),
    "stack": str.lower,
    "release": str.lower,
    "attention": nearest_of({name: name for name in ("flash", "flash2", "flash3", "fused-softmax", "eager")}),
    "fused_norm": one_of(FLAGS),
    "loss_logits": str.lower,
    "comm_overlap": str.lower,
    "expert_dispatch": one_of(tuple(DISPATCHERS)),
    "expert_overlap": one_of(FLAGS),
    "synchronous_norm": synchronous_norm,
}
COLUMN_OF = {"synchronous_norm": "schedule"}
"""Fields that are in a column of another name."""
CHOSEN: dict[str, Reader] = {
    "micro_batch": _degree,
    "tp": _degree,
    "sequence_parallel": one_of(FLAGS),
    "pp": _degree,
    "virtual_stages": _degree,
    "schedule": schedule,
    "vocab_parallel": str.lower,
    "cp": _degree,
    "ep": _degree,
    "etp": _degree,
    "dp": _degree,
    "sharding": nearest_of({name: name for name in SHARDINGS} | dict(SHARDING_SPELLINGS)),
    "shard_group": _degree,
    "recompute": recompute,
    "stage_layers": stage_layers,
    "rank_order": rank_order,
}
RESULT: dict[str, Reader] = {
    "outcome": one_of(("ok", "oom")),
    "step_time_s": positive(1e9),
    "peak_memory_gib": positive(1e6),
}
IDENTITY = ("run_id", "source")
ESSENTIAL = ("seq_len", "global_batch", "device", "devices")
COLUMNS = (*IDENTITY, *(name for name in GIVEN if name not in COLUMN_OF), *CHOSEN, *RESULT)
"""The columns that are read; others are ignored."""

CACHED = 2**18


def read_runs(path: str | Path, own: Collection[str] = ()) -> Iterator[Run | Skipped]:
    """Yield every run of a table, in order. Raises InputError for a file that is not such a table.

    ``own`` are ids of devices outside the catalogue that a run may use.
    """
    with opened_table(path) as lines:
        yield from _Lines(csv.reader(lines), str(path), own)


class _Part(NamedTuple):
    """A part of a run, None where it has problems."""

    value: Any
    wrong: list[str]
    remarks: list[str]


def _in_full(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row's values with the precision and its recipe under two names."""
    if not isinstance(values.get("precision"), tuple):
        return values
    precision, recipe = values["precision"]
    return {**values, "precision": precision, "fp8_recipe": recipe or values["fp8_recipe"]}


class _Lines:
    """The lines of one table; equal cells are parsed once."""

    def __init__(self, reader: Any, path: str, own: Collection[str]) -> None:
        self.reader = reader
        self.read_given = GIVEN | {"device": device_of(own)}
        self.header = read_header(reader, path, ESSENTIAL, COLUMNS)
        names = [COLUMN_OF.get(name, name) for name in (*IDENTITY, *GIVEN, *CHOSEN, *RESULT)]
        pick = [self.header.index(name) if name in self.header else -1 for name in names]
        first, second = len(IDENTITY) + len(GIVEN), len(IDENTITY) + len(GIVEN) + len(CHOSEN)
        self.identity = itemgetter(*pick[: len(IDENTITY)])
        self.given = itemgetter(*pick[len(IDENTITY) : first])
        self.chosen = itemgetter(*pick[first:second])
        self.result = itemgetter(*pick[second:])
        self.parsed: dict[tuple[str, ...], _Part] = {}
        self.same: dict[Any, Any] = {}

    def __iter__(self) -> Iterator[Run | Skipped]:
        while True:
            try:
                cells = next(self.reader, None)
            except csv.Error as error:
                yield self._skipped("", "", f"cannot be read: {error}")
                continue
            if cells is None:
                return
            if any(cells):
                yield self._run(cells)

    def _run(self, cells: list[str]) -> Run | Skipped:
        width, columns = len(cells), len(self.header)
        cells += [""] * (columns + 1 - width)  # the last one is for columns that the table lacks
        name, source = self.identity(cells)
        if width != columns:
            return self._skipped(name, source, f"has {width} cells, the header {columns}")
        given = self._part(self.given(cells), self.read_given, SettingColumns)
        chosen = self._part(self.chosen(cells), CHOSEN, PlanColumns)
        outcome, step_s, memory = (text.strip() for text in self.result(cells))
        result = read_cells((outcome, step_s, memory), RESULT)
        wrong = [*given.wrong, *chosen.wrong, *result.wrong]
        if wrong:
            return self._skipped(name, source, "; ".join(wrong))
        measured = result.values
        oom = measured["outcome"] == "oom"
        return Run(
            self.reader.line_num,
            name.strip() or f"line {self.reader.line_num}",
            self.same.setdefault(source.strip(), source.strip()),
            given.value,
            chosen.value,
            "oom" if oom else "ok",
            None if oom else measured["step_time_s"],
            None if oom else measured["peak_memory_gib"],
            (*given.remarks, *chosen.remarks),
        )

    def _part(self, texts: tuple[str, ...], readers: dict[str, Reader], kind: Any) -> "_Part":
        """Return one part of a run, its problems and remarks; equal parts are one object."""
        key = (kind.__name__, *texts)
        known = self.parsed.get(key)
        if known is None:
            cells = read_cells(texts, readers)
            missing = (n for n in ESSENTIAL if n in readers and cells.values.get(n, 0) is None)
            wrong = [*cells.wrong, *(f"{name}: not given" for name in missing)]
            part = None if wrong else kind(**_in_full(cells.values))
            known = _Part(part and self.same.setdefault(part, part), wrong, cells.remarks)
            if len(self.parsed) >= CACHED:
                self.parsed.clear()
            self.parsed[key] = known
        return known

    def _skipped(self, name: str, source: str, reason: str) -> Skipped:
        line = self.reader.line_num
        return Skipped(line, name.strip() or f"line {line}", source.strip(), reason)
