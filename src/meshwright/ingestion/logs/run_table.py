"""Write the table of runs as text, and merge rows into an existing table.

``HEADER`` has every column that a log or a person can fill, in the order of docs/accuracy.md; ``validate`` and
``calibrate`` read those of ``validation/read_run_table.py`` and ignore the others.
"""

import csv
import io
from collections.abc import Iterable, Mapping

from meshwright.errors import InputError, Problem

HEADER = (
    *("run_id", "source", "locator", "model", "layers", "hidden", "ffn_hidden", "ffn", "heads", "kv_heads"),
    *(
        "vocab",
        "experts",
        "experts_per_token",
        "next_token_layers",
        "tied_embeddings",
        "head_dim",
        "task",
        "seq_len",
    ),
    *("device", "devices", "devices_per_node", "scaleup_domain", "node_nic_gbit_per_s"),
    *("global_batch", "micro_batch", "tp", "sequence_parallel", "pp", "virtual_stages", "schedule"),
    *("vocab_parallel", "cp", "ep", "etp", "dp", "sharding", "shard_group", "recompute"),
    *("stage_layers", "rank_order"),
    *("precision", "fp8_recipe", "attention", "fused_norm", "loss_logits", "compile", "tp_overlap"),
    *("comm_overlap", "expert_dispatch", "expert_overlap"),
    *("stack", "outcome", "step_time_s", "step_time_origin", "peak_memory_gib"),
    *("memory_origin", "release", "notes"),
)
NAME = "run_id"

Row = Mapping[str, str]


def write_rows(rows: Iterable[Row]) -> str:
    """Return a table with these rows; of several with one ``run_id`` the last."""
    return _text(HEADER, {row[NAME]: row for row in rows}.values())


def append_rows(existing: str, rows: Iterable[Row]) -> str:
    """Return a table with these rows merged in: in place of those with the same ``run_id``, else at the end.

    The header is kept, and extended by columns that only new rows fill. Raises InputError if it is not a table.
    """
    if not existing.strip():
        return write_rows(rows)
    header, kept = _read(existing)
    new = {row[NAME]: row for row in rows}
    header += [name for name in HEADER if name not in header and any(row.get(name) for row in new.values())]
    left = dict(new)
    merged = [left.pop(row[NAME], row) for row in kept if row[NAME] in left or row[NAME] not in new]
    return _text(header, [*merged, *left.values()])


def _read(text: str) -> tuple[list[str], list[dict[str, str]]]:
    """Return header and rows of a table; cells of short lines are empty."""
    try:
        lines = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    except csv.Error as error:
        raise InputError(
            Problem("runs", text[:40], f"is no CSV: {error}", "a table with a header")
        ) from error
    header = [name.strip() for name in lines[0]]
    problems = []
    if NAME not in header or len(set(header)) < len(header):
        rule = f"needs a first line with the column {NAME}, and every column once"
        problems.append(Problem("runs", ",".join(header)[:80], rule, "a table that validate reads"))
    long = [number for number, line in enumerate(lines, start=1) if len(line) > len(header)]
    if long:
        rule = f"lines have more cells than the header's {len(header)}"
        problems.append(Problem("runs", long[:5], rule, "quote cells that hold commas"))
    if problems:
        raise InputError(problems)
    return header, [
        dict.fromkeys(header, "") | dict(zip(header, line, strict=False)) for line in lines[1:] if any(line)
    ]


def _text(header: Iterable[str], rows: Iterable[Row]) -> str:
    names = list(header)
    return "".join(
        _line(cells) for cells in (names, *([row.get(name, "") for name in names] for row in rows))
    )


def _line(cells: Iterable[str]) -> str:
    """Return a CSV line; writing with both line-end characters makes the writer quote cells with either."""
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\r\n").writerow(cells)
    return stream.getvalue().removesuffix("\r\n") + "\n"
