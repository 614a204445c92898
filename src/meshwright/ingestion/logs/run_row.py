"""Make one row of a table of runs from a log and given columns, with the origin of each cell.

``given`` are columns of a plan (``plan_columns``), of a cluster, or set by the user. If log and given columns
contradict each other there is a warning; the log's number wins, because it is what ran, and the given *name* wins
(``NAMES``), because the log does not decide the name of a run, a model or a stack, nor the schedule of a modified
framework. Devices follow from the degrees. A model without a name gets that of the released model with its sizes, if
there is exactly one.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from meshwright.errors import InputError, Problem, nearest
from meshwright.frameworks.importing.imported_file import Fact, ImportedFile
from meshwright.frameworks.importing.model_match import matching_zoo_models
from meshwright.ingestion.logs.events import Cells, MemoryKind, Unit
from meshwright.ingestion.logs.readers.meshwright_runtime import IN_FULL
from meshwright.ingestion.logs.run_table import HEADER
from meshwright.ingestion.logs.summary import LogSummary, units_per_step
from meshwright.model.load import load_model
from meshwright.model.zoo_names import same_sizes
from meshwright.validation.cell_parsers import Reader, read_cells
from meshwright.validation.read_run_table import CHOSEN, COLUMN_OF, ESSENTIAL, GIVEN, RESULT
from meshwright.validation.run_model import NEEDED, configured, released_model_name

NAMES = (
    *("run_id", "source", "locator", "release", "notes", "model", "stack", "task", "schedule", "outcome"),
    *("step_time_origin", "memory_origin"),
)
"""Columns in which a given value wins over the log's."""
MEASURES: dict[str, Reader] = {n: r for n, r in (GIVEN | CHOSEN | RESULT).items() if n not in COLUMN_OF}
SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "experts", "experts_per_token")
PADDED = 1.05
"""Largest ratio of a padded vocabulary to its own size."""
LONGEST, LONGEST_PATH = 200, 4096
COVERED = ("shared experts", "dense layers between those with experts")
"""Remarks that a model's own configuration answers."""
PLANNED = {"stage_layers": "stages of unequal length", "tp": IN_FULL}
"""Remarks that a plan answers if it fills these columns."""
HINT = "give the plan, or set the column, for example device=h100-sxm-80gb"
FROM: dict[Unit, str] = {"step": "", "token of a device": "from tokens/s, ", "sample": "from samples/s, "}
KINDS: dict[MemoryKind, str] = {
    "max allocated": "GiB, max allocated",
    "max reserved": "GiB, max reserved: with the allocator's cache",
}
"""Kinds of peaks in order of preference, and the text of their origin."""


class Origin(NamedTuple):
    """Source of a cell, and the words of the log behind it."""

    source: Literal["log", "given"]
    words: str = ""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row by column, without empty cells, with the origin of each; ``problems`` are warnings."""

    cells: dict[str, str]
    origins: dict[str, Origin]
    problems: tuple[Problem, ...]


def run_row(summary: LogSummary, given: Mapping[str, object], own: str | None = None) -> RunRow:
    """Return the row of a log. Raises InputError with every wrong given column and every missing one.

    ``own`` is the id of a device that need not be in the catalogue.
    """
    row = _Row(_given(given, own))
    row.take(summary.cells)
    row.take(_devices(row.cells))
    row.take(measured_columns(summary, row.cells))
    row.take(_names(summary, row.cells))
    missing = list(_missing(row.cells))
    if missing:
        raise InputError(missing)
    problems = (*_warnings(summary, row.cells), *row.problems, *_contradictions(row.cells))
    cells = {column: row.cells[column] for column in HEADER if column in row.cells}
    return RunRow(cells, {column: row.origins[column] for column in cells}, problems)


class _Row:
    """A row being filled; a filled column is kept."""

    def __init__(self, theirs: dict[str, str]) -> None:
        self.theirs = theirs
        self.cells = dict(theirs)
        self.origins = {column: Origin("given") for column in theirs}
        self.problems: list[Problem] = []

    def take(self, facts: Cells) -> None:
        """Merge the log's facts with the given columns."""
        for column, fact in facts.items():
            words = "".join(letter if letter.isprintable() else "�" for letter in fact.words)
            if _value(column, fact.value) is None:
                rule = "the log's value can not be, and is left out"
                self.problems.append(Problem(column, fact.value, rule, HINT, "warning"))
                continue
            theirs = self.theirs.get(column)
            stands = theirs is None or column not in NAMES
            if theirs is not None and not _same(column, fact.value, theirs):
                taken = "the log's number" if stands else "the given name"
                rule = f"the log says {fact.value} ({words}); {taken} stands"
                self.problems.append(
                    Problem(column, theirs, rule, "check that log and plan belong together", "warning")
                )
            if stands:
                self.cells[column], self.origins[column] = fact.value, Origin("log", words)


def _given(given: Mapping[str, object], own: str | None) -> dict[str, str]:
    """Return given columns as text. Raises InputError for unknown columns and impossible values."""
    texts = {column: _text(value) for column, value in given.items() if value is not None and value != ""}
    problems = []
    for column, text in texts.items():
        if column not in HEADER:
            problems.append(Problem(column, text, "is no column of a table of runs", nearest(column, HEADER)))
        elif (column, text) != ("device", own) and (wrong := _wrong(column, text)):
            problems.append(Problem(column, text, wrong, HINT))
    if problems:
        raise InputError(problems)
    return texts


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _wrong(column: str, text: str) -> str:
    """Return the problem of a cell; empty for a good one."""
    longest = LONGEST_PATH if column == "model" else LONGEST
    if not text.isprintable() or len(text) > longest:
        return f"must be one line of up to {longest} characters"
    if column not in MEASURES:
        return ""
    cells = read_cells((text,), {column: MEASURES[column]})
    if cells.remarks:
        return "is no word that we know"
    return cells.wrong[0].partition(": ")[2] if cells.wrong else ""


def _value(column: str, text: str) -> Any:
    """Return the value of a cell; None if its text is impossible."""
    if _wrong(column, text):
        return None
    if column not in MEASURES:
        return text
    return read_cells((text,), {column: MEASURES[column]}).values[column]


def _same(column: str, ours: str, theirs: str) -> bool:
    """Return whether two texts of a column agree: any model matches a free name, remarks never contradict."""
    if column in ("notes", "step_time_origin", "memory_origin"):
        return True
    if column == "model":
        found, known = released_model_name(theirs), released_model_name(ours)
        twins = same_sizes()
        return found is None or twins.get(found, found) == (known and twins.get(known, known))
    return _meaning(column, ours) == _meaning(column, theirs)


def _meaning(column: str, text: str) -> object:
    """Return the value of a cell, equal for all spellings; a stack without its release."""
    value = _value(column, text)
    match column:
        case "stack":
            return str(value).partition("@")[0]
        case "recompute":
            return value if isinstance(value, str) else set(value)
        case _:
            return value


def _devices(cells: Mapping[str, str]) -> Cells:
    """Return the product of the degrees if no number of devices is known."""
    dp = cells.get("dp")
    if dp is None or "devices" in cells:
        return {}
    product = _product(cells)
    return {"devices": Fact(str(product), f"pp·dp·cp·tp = {product}")}


def _product(cells: Mapping[str, str]) -> int:
    product = 1
    for axis in ("pp", "dp", "cp", "tp"):
        product *= _value(axis, cells.get(axis, "")) or 1
    return product


def _names(summary: LogSummary, cells: Mapping[str, str]) -> Cells:
    """Return names that are not given: the released model of these sizes, and a run id from its settings."""
    names: Cells = {}
    if "model" not in summary.cells and (model := _zoo_name(cells)):
        names["model"] = Fact(model, "the released model of these sizes")
    if "source" not in cells:
        names["source"] = Fact("own log", f"a log of {summary.reader}")
    if "run_id" not in cells:
        setting = sorted((c, t) for c, t in cells.items() if c not in RESULT and not c.endswith("_origin"))
        digest = hashlib.sha256(repr(setting).encode()).hexdigest()[:12]
        names["run_id"] = Fact(f"{cells.get('stack', summary.reader)}-{digest}", "a digest of the settings")
    return names


def _zoo_name(cells: Mapping[str, str]) -> str | None:
    values = {name: _value(name, cells[name]) for name in (*SIZES, "ffn_hidden") if name in cells}
    routed = values.get("experts", 0) > 1
    width = values.pop("ffn_hidden", None)
    if width is not None:
        values["expert_intermediate" if routed else "intermediate"] = width
    if cells.get("head_dim") == "mla":
        values = {name: value for name, value in values.items() if name not in ("head_dim", "kv_heads")}
    facts = {f"model.{name}": Fact(value, name) for name, value in values.items()}
    vocab = _value("vocab", cells.get("vocab", ""))
    same = matching_zoo_models(ImportedFile(source="log", release="", facts=facts))
    ratios = {n: 1.0 if vocab is None else vocab / load_model(n).architecture.vocab for n in same}
    equal = [n for n, ratio in ratios.items() if ratio == 1]
    names = equal or [n for n, ratio in ratios.items() if 1 <= ratio <= PADDED]
    return names[0] if len(names) == 1 else None


def _missing(cells: Mapping[str, str]) -> Iterator[Problem]:
    """Yield missing columns without which a row cannot be compared."""
    for column in ESSENTIAL:
        if column not in cells:
            yield Problem(column, None, "neither the log nor what is given says it", HINT)
    if configured(cells.get("model", "")) is None:
        routed = (_value("experts", cells.get("experts", "")) or 0) > 1
        shape = (*NEEDED, "experts_per_token") if routed else NEEDED
        for column in shape:
            if column not in cells:
                rule = "neither the log nor what is given says it, and the model is none that we know"
                yield Problem(column, None, rule, "model=llama-3.1-8b, or the shape: layers=32")
    if not {"step_time_s", "peak_memory_gib"} & set(cells) and cells.get("outcome", "").lower() != "oom":
        rule = "the log has no step after warm-up whose time is known, and no peak of memory"
        yield Problem("step_time_s", None, rule, "a log of more steps")


def _warnings(summary: LogSummary, cells: Mapping[str, str]) -> Iterator[Problem]:
    notes = summary.cells.get("notes")
    known = [remark for column, remark in PLANNED.items() if column in cells]
    known += COVERED if configured(cells.get("model", "")) else ()
    for remark in notes.value.split("; ") if notes else ():
        if remark in known:
            continue
        rule = "no column says this, and the row is compared without it"
        yield Problem("notes", remark, rule, "leave such runs out of a calibration", "warning")
    if summary.other_runs:
        rule = "earlier runs in the same file had other settings: only the last one counts"
        yield Problem("log", summary.other_runs, rule, "one file per run", "warning")
    if summary.out_of_memory and summary.timing:
        rule = f"memory ran out after {summary.timing.steps} steps"
        yield Problem("outcome", "oom", rule, "outcome=ok if the steps are what counts", "warning")


def _contradictions(cells: Mapping[str, str]) -> Iterator[Problem]:
    if "dp" in cells and _product(cells) != _value("devices", cells["devices"]):
        rule = f"pp·dp·cp·tp = {_product(cells)} ≠ {cells['devices']} devices"
        yield Problem("devices", cells["devices"], rule, "check that log and plan belong together", "warning")


def measured_columns(summary: LogSummary, known: Mapping[str, str]) -> Cells:
    """Return the columns; ``known`` tells how much work a step is. A run out of memory has neither time nor peak."""
    outcome = "oom" if summary.out_of_memory else "ok"
    words = "the message of PyTorch" if summary.out_of_memory else "its steps"
    cells: Cells = {"outcome": Fact(outcome, words)}
    if known.get("outcome", outcome).lower() == "oom":
        return cells
    return cells | _time(summary, known) | _memory(summary)


def _time(summary: LogSummary, known: Mapping[str, str]) -> Cells:
    timing, work = summary.timing, units_per_step(summary.unit, known)
    if timing is None or not work:
        return {}
    low, middle, high = (
        f"{seconds * work:.6g}" for seconds in (timing.low_s, timing.median_s, timing.high_s)
    )
    origin = f"{FROM[summary.unit]}median of {timing.steps} reports; 10 to 90 %: {low} to {high} s"
    words = f"{timing.steps} reports after {timing.warm_up} of warm-up"
    return {"step_time_s": Fact(middle, words), "step_time_origin": Fact(origin, words)}


def _memory(summary: LogSummary) -> Cells:
    for kind, origin in KINDS.items():
        if kind in summary.peaks_gib:
            peak = f"{summary.peaks_gib[kind]:.6g}"
            return {"peak_memory_gib": Fact(peak, kind), "memory_origin": Fact(origin, kind)}
    return {}
