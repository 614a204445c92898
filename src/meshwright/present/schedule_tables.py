"""Print pipeline schedules: figures of one, a row for each of several, a table of all."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.present.console import console, percent, plain_table, printable

MOST_ACTIONS = 40
"""Longest lists that are printed, in actions."""
MOST_RANKS = 32
"""Largest number of ranks that are all printed; of more only the first and the last."""


def render_schedule(data: dict[str, Any], written: Sequence[str]) -> None:
    """Print one schedule in its public JSON form."""
    out = console()
    out.print(escape(f"{_name(data)}: {_size(data)}; {_times(data['times'])}"))
    out.print(
        f"makespan {data['makespan']:g}, latency {data['latency']:g}; "
        f"bubble {percent(data['bubble_rate'])} of the busiest rank's work"
    )
    if data.get("note"):
        out.print(f"[dim]{escape(data['note'])}[/dim]")
    if "lower_bound" in data:
        for line in _search(data):
            out.print(escape(line))
    out.print(f"messages {sum(data['messages']):,}{_of_1f1b(data['p2p_volume'])}; {_parameters(data)}\n")
    table = plain_table("rank", "stages", "busy", "peak memory", "messages")
    for rank in _shown_ranks(data["ranks"]):
        table.add_row(*(_rank_cells(data, rank) if rank is not None else ["…"] * 5))
    out.print(table)
    if max(map(len, data["actions"])) <= MOST_ACTIONS and data["ranks"] <= MOST_RANKS:
        out.print()
        for rank, actions in enumerate(data["actions"]):
            out.print(f"{rank:>4}  {' '.join(actions)}", soft_wrap=True)
    for path in written:
        out.print(f"\nWritten: {escape(path)}")


def render_compared(data: dict[str, Any], written: str | None) -> None:
    """Print a comparison of schedules in its public JSON form; under several limits only their bubbles."""
    out = console()
    limits = {row["memory_limit"] for row in data["rows"]}
    if len(limits) > 1:
        _print_sweep(out, data["rows"], sorted(limits), written)
        return
    limited = any(row["memory_limit"] is not None for row in data["rows"])
    sizes = {(row["ranks"], row["micro_batches"]) for row in data["rows"]}
    if len(sizes) == 1:
        out.print(f"{data['rows'][0]['ranks']} ranks, {data['rows'][0]['micro_batches']} micro-batches")
    head = [
        "schedule",
        *(["ranks", "M"] if len(sizes) > 1 else []),
        "V",
        "makespan",
        "latency",
        "bubble",
        "peak",
    ]
    head += ["by rank", "messages", "of 1f1b", "parameters", *(["fits"] if limited else [])]
    table = plain_table(*head, wrapped=("by rank",))
    table.columns[0].min_width = max(len(word) for row in data["rows"] for word in row["schedule"].split())
    for row in data["rows"]:
        fits = ["yes" if row["fits"] else "no"] if limited else []
        size = [str(row["ranks"]), str(row["micro_batches"])] if len(sizes) > 1 else []
        table.add_row(escape(_name(row)), *size, *_numbers(row), *fits)
    out.print(table)
    out.print(
        "\n[dim]Peak memory, of the fullest rank and by rank: F of a micro-batch on a whole rank holds 2. "
        "Parameters: shares of the model. Makespan: longest of any rank; latency: from the first start to the last "
        "end of all.[/dim]"
    )
    for row in data["rows"]:
        for note in _notes(row):
            out.print(f"[dim]Note on {escape(_name(row))}: {escape(note)}.[/dim]")
    if written:
        out.print(f"Written: {escape(written)}")


def _print_sweep(
    out: Console, rows: Sequence[dict[str, Any]], limits: Sequence[float], written: str | None
) -> None:
    """Print the bubble of each schedule under each memory limit that it keeps."""
    out.print(f"{rows[0]['ranks']} ranks, {rows[0]['micro_batches']} micro-batches")
    table = plain_table("schedule", "V", *(f"limit {limit:g}" for limit in limits), "least peak")
    for name in dict.fromkeys(row["schedule"] for row in rows):
        own = {row["memory_limit"]: row for row in rows if row["schedule"] == name}
        first = next(iter(own.values()))
        cells = [_bubble_if_it_fits(own.get(limit)) for limit in limits]
        least = min(max(row["peak_memory"]) for row in own.values())
        table.add_row(escape(_name(first)), str(first["chunks"]), *cells, f"{least:g}")
    out.print(table)
    out.print(
        "\n[dim]Bubble, of the busiest rank's work, and peak memory of the fullest rank under each memory limit: F of "
        "a micro-batch on a whole rank holds 2. A dash: it holds more than the limit.[/dim]"
    )
    if written:
        out.print(f"Written: {escape(written)}")


def _bubble_if_it_fits(row: dict[str, Any] | None) -> str:
    if row is None or not row["fits"]:
        return "–"
    return f"{percent(row['bubble_rate'])} ({max(row['peak_memory']):g})"


def _notes(row: dict[str, Any]) -> Iterator[str]:
    """Yield how a schedule's times follow from the given stages, and how its published bubble is defined."""
    given, stages = row["stages_given"], row["ranks"] * row["chunks"] // row["chains"]
    if given is not None and given < stages:
        yield f"each of its {stages} stages takes {_part(stages // given)} of a given one"
    elif given is not None and given not in (stages, row["chains"] * stages):
        yield f"each of its {stages} stages is {given // stages} of the given ones"
    if row["note"]:
        yield row["note"]


def _part(parts: int) -> str:
    return {2: "half", 3: "a third", 4: "a quarter"}.get(parts, f"1/{parts}")


def render_schedules(data: dict[str, Any]) -> None:
    """Print all schedules in their public JSON form."""
    out, rows = console(), data["schedules"]
    table = plain_table("schedule", "chunks", "bubble", "memory", "messages", "parameters", "what it does")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for row in rows:
        table.add_row(
            row["schedule"],
            row["allowed_chunks"],
            percent(row["bubble_rate"]),
            f"{max(row['peak_memory']):.4g}",
            _ratio(row["p2p_volume"]),
            _ratio(row["parameters_held"]),
            row["summary"],
        )
    out.print(table)
    first = rows[0]
    out.print(
        f"\n[dim]Figures for {first['ranks']} ranks and {first['micro_batches']} micro-batches, F = I = W and no time "
        "for messages: bubble beside the busiest rank's work; the most that a rank holds, where F of a micro-batch "
        "on a whole rank takes 2; messages beside those of 1f1b; shares of the model on a rank.[/dim]"
    )


def _name(row: dict[str, Any]) -> str:
    return printable(row["schedule"])


def _size(data: dict[str, Any]) -> str:
    chunks = data["chunks"]
    of_rank = f" of {chunks} stages" if chunks > 1 else ""
    return f"{data['ranks']} ranks{of_rank}, {data['micro_batches']} micro-batches"


def _times(times: dict[str, Any]) -> str:
    """Return the times of a stage; their range if stages differ."""
    words = []
    for name, key in (("F", "forward"), ("I", "input"), ("W", "weight")):
        low, high = min(times[key]), max(times[key])
        words.append(f"{name} {low:g}" + (f"–{high:g}" if high > low else ""))
    return f"{', '.join(words)} of a stage, message {times['message']:g}"


def _search(data: dict[str, Any]) -> Iterator[str]:
    """Yield how lists were found, and their distance from the bound."""
    seed = data["best_seed"]
    shorter = 1 - data[data["goal"]] / data["seed_makespan"]
    gain = f", {percent(shorter)} shorter than {seed}, the best of the table" if shorter > 0 else ""
    steps = f"{data['search_steps']:,} steps in {data['search_time_s']:.1f} s"
    yield f"found by {data['found_by']}{gain}; {steps}{'; interrupted' if data['interrupted'] else ''}"
    if data["proven"]:
        limit = data["memory_limit"]
        memory = "the plan's memory" if limit is None else f"memory {limit:g}"
        yield f"no lists within {memory} can be shorter, by {data['bound_reason']}"
    else:
        bound = f"{data['lower_bound']:g}, by {data['bound_reason']}"
        yield f"not proven: {data['gap']:.3%} above the lower bound {bound}"


def _of_1f1b(volume: float | None) -> str:
    return f", {_ratio(volume)} times those of 1f1b" if volume is not None else ""


def _parameters(data: dict[str, Any]) -> str:
    return f"parameters {_ratio(data['parameters_held'])} times a rank's share of the model"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _shown_ranks(ranks: int) -> Iterator[int | None]:
    """Yield all ranks, or the ends with a gap between them."""
    if ranks <= MOST_RANKS:
        yield from range(ranks)
        return
    yield from range(MOST_RANKS // 2)
    yield None
    yield from range(ranks - MOST_RANKS // 2, ranks)


def _rank_cells(data: dict[str, Any], rank: int) -> list[str]:
    stages = [str(stage) for stage, where in enumerate(data["placement"]) if where == rank]
    return [
        str(rank),
        " ".join(stages),
        percent(data["busy"][rank]),
        f"{data['peak_memory'][rank]:.4g}",
        f"{data['messages'][rank]:,}",
    ]


def _numbers(row: dict[str, Any]) -> list[str]:
    peaks = row["peak_memory"]
    return [
        str(row["chunks"]),
        f"{row['makespan']:g}",
        f"{row['latency']:g}",
        percent(row["bubble_rate"]),
        f"{max(peaks):.4g}",
        _few([f"{peak:.4g}" for peak in peaks]),
        f"{sum(row['messages']):,}",
        _ratio(row["p2p_volume"]),
        _ratio(row["parameters_held"]),
    ]


def _few(words: list[str]) -> str:
    """Return all of a few words, the ends of many."""
    return " ".join(words if len(words) <= 8 else [*words[:4], "…", *words[-3:]])
