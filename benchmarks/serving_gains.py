"""Set the predicted gains of seven serving systems beside the published ones.

    python benchmarks/serving_gains.py            prints the tables
    python benchmarks/serving_gains.py --write    also writes benchmarks/serving-gains.md

``serving_gain_cases.py``, ``best_plan_gain.py`` and ``phase_layout_gain.py`` compute the predictions, in seconds.
"""

import sys
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from textwrap import fill

from best_plan_gain import PUBLISHED, best_plan_gain
from phase_layout_gain import CLUSTERS, DATA_SETS, MODELS, phase_layout_gain
from serving_gain_cases import (
    ENERGON_BATCHES,
    ENERGON_LAYERS,
    ENERGON_PADDED,
    MESSAGES,
    NANO_LENGTHS,
    NVRAR_BATCHES,
    NVRAR_RANKS,
    SUBLAYERS,
    T3_MODELS,
    T3_RANKS,
    WEAVE_LENGTHS,
    energon_reduction,
    geometric_mean,
    nano_flow,
    nvrar_all_reduce,
    nvrar_batch,
    t3,
    token_weave,
)
from serving_gain_texts import CLOSING, OPENING, SECTIONS, WEAVE_GAINS, WEAVE_MS

from meshwright import __version__

PAGE = Path(__file__).with_name("serving-gains.md")
Row = Sequence[str]
WIDTH = 118
WEAVE_NEAR = 0.09


def table(head: Row, rows: Iterable[Row]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def times(value: float) -> str:
    """Return a gain."""
    return f"{value:.2f}×"


def ends(values: Sequence[float]) -> str:
    """Return the least and the largest of some gains."""
    return f"{min(values):.2f} to {max(values):.2f}×"


def wrapped(text: str, indent: str = "") -> str:
    """Return a paragraph in lines."""
    return fill(
        " ".join(text.split()),
        WIDTH,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def weave_tables() -> list[str]:
    """Return the gains of TokenWeave by model and length, and the seconds that they start from."""
    lengths = [f"{tokens // 1024}k" for tokens in WEAVE_LENGTHS]
    rows, apart = [], []
    for (model, tp), published in WEAVE_GAINS.items():
        found = [woven.plain_s / woven.woven_s for woven in token_weave(model, tp)]
        apart += [abs(own - other) for own, other in zip(found, published, strict=True)]
        rows.append([f"{model}, tp {tp}, published", *[f"{gain:.2f}" for gain in published]])
        rows.append([f"{model}, tp {tp}, predicted", *[f"{gain:.2f}" for gain in found]])
    seconds = []
    predicted = zip(*token_weave("llama-3.1-70b", 8), strict=True)
    for (form, measured), own in zip(WEAVE_MS.items(), predicted, strict=True):
        seconds.append([f"{form}, measured", *[f"{value:.0f}" for value in measured]])
        seconds.append([f"{form}, predicted", *[f"{1e3 * value:.0f}" for value in own]])
    head = ["ms of llama-3.1-70b, tp 8", *lengths]
    near = sum(difference < WEAVE_NEAR for difference in apart)
    said = f"{near} of {len(apart)} gains are within {WEAVE_NEAR} of the published ones."
    return [table(["gain at tokens of the prompt", *lengths], rows), table(head, seconds), said]


def nano_tables() -> list[str]:
    """Return the gains of NanoFlow by lengths."""
    found = {name: nano_flow(*lengths) for name, lengths in NANO_LENGTHS.items()}
    rows = [[name, times(gain.kernels), times(gain.engine)] for name, gain in found.items()]
    return [table(["tokens in / out", "overlap alone", "with the host of today's TensorRT-LLM hidden"], rows)]


def nvrar_tables() -> list[str]:
    """Return the gains of NVRAR by message and by batch."""
    reduces = [[str(ranks), *map(times, nvrar_all_reduce(ranks))] for ranks in NVRAR_RANKS]
    batches = []
    for ranks in NVRAR_RANKS:
        for batch in NVRAR_BATCHES:
            gain = nvrar_batch(ranks, batch)
            batches.append([f"{ranks}, {batch}", times(gain.latency), times(gain.decode)])
    head = ["devices, batch", "latency of the batch", "decoding"]
    return [table(["all-reduce of devices", *MESSAGES], reduces), table(head, batches)]


def t3_tables() -> list[str]:
    """Return the gains of T3 by sublayer."""
    rows = []
    for model in T3_MODELS:
        for ranks in T3_RANKS:
            usual, free = zip(*t3(model, ranks), strict=True)
            means = times(geometric_mean(usual)), times(geometric_mean(free))
            rows.append([f"{model}, tp {ranks}", *map(times, usual), *means])
    names = [sublayer.name for sublayer in SUBLAYERS]
    return [table(["model", *names, "geometric mean", "without contention"], rows)]


def energon_tables() -> list[str]:
    """Return the reductions of EnergonAI by batch."""
    rows = []
    for tp, layers in ENERGON_LAYERS.items():
        for padded in ENERGON_PADDED:
            found = [energon_reduction(tp, batch, padded) for batch in ENERGON_BATCHES]
            name = f"tp {tp}, {layers} layers, padded to {padded}"
            rows.append([name, *[f"−{100 * reduction:.0f}%" for reduction in found]])
    return [table(["latency at a batch of", *map(str, ENERGON_BATCHES)], rows)]


def apex_tables() -> list[str]:
    """Return the gains of APEX by model, cluster and trace."""
    rows = []
    for case in PUBLISHED:
        gain = best_plan_gain(case.model, case.cluster, case.trace)
        feasible = "not read" if case.feasible is None else times(case.feasible)
        name = f"{case.model}, {case.cluster}, {case.trace}"
        found = [times(gain.busy), gain.busy_plan, times(gain.latency)]
        rows.append([name, times(case.unconstrained), feasible, *found])
    head = [
        "setting",
        "published",
        "of these, plans that engines run",
        "busy seconds",
        "best plan",
        "latency",
    ]
    return [table(head, rows)]


def seesaw_gains() -> list[float]:
    """Return the gain of a layout for each phase in every setting."""
    return [
        phase_layout_gain(model, cluster, data).gain
        for cluster in CLUSTERS
        for model in MODELS
        for data in DATA_SETS
    ]


def seesaw_tables() -> list[str]:
    """Return the gains of Seesaw by devices, model and lengths."""
    rows = []
    for cluster in CLUSTERS:
        for model in MODELS:
            for data in DATA_SETS:
                found = phase_layout_gain(model, cluster, data)
                sides = [
                    text
                    for side in (found.single, found.phased)
                    for text in (side.name, f"{side.requests_per_s:.2f}")
                ]
                rows.append([f"{model}, {cluster}, {data}", *sides, times(found.gain)])
    head = ["setting", "one layout", "requests/s", "prefill → decode", "requests/s", "gain"]
    return [table(head, rows)]


def summary() -> str:
    """Return the table of all systems."""
    apex = max(PUBLISHED, key=lambda case: case.unconstrained)
    best = best_plan_gain(apex.model, apex.cluster, apex.trace)
    latency = [nvrar_batch(ranks, batch).latency for ranks in NVRAR_RANKS for batch in NVRAR_BATCHES]
    woven = max(w.plain_s / w.woven_s for model, tp in WEAVE_GAINS for w in token_weave(model, tp))
    tiled = [zip(*t3(model, ranks), strict=True) for model in T3_MODELS for ranks in T3_RANKS]
    usual, free = (geometric_mean([g for case in cases for g in case]) for cases in zip(*tiled, strict=True))
    nano = [nano_flow(*lengths).kernels for lengths in NANO_LENGTHS.values()]
    cuts = [
        energon_reduction(tp, b, p) for tp in ENERGON_LAYERS for b in ENERGON_BATCHES for p in ENERGON_PADDED
    ]
    lost = f"−{100 * min(cuts):.0f} to −{100 * max(cuts):.0f}%"
    seesaw = seesaw_gains()
    mean = times(geometric_mean(seesaw))
    rows = [
        ["[APEX](#apex)", "3.37×", f"{times(best.busy)}; latency {times(best.latency)}", "1.17×"],
        ["[EnergonAI](#energonai)", "−37% latency", lost, ""],
        ["[NVRAR](#nvrar)", "up to 1.72×", ends(latency), ""],
        ["[TokenWeave](#tokenweave)", "up to 1.28×", f"up to {times(woven)}", ""],
        ["[T3](#t3)", "1.30× (sublayers)", f"{times(usual)}; without contention {times(free)}", ""],
        ["[NanoFlow](#nanoflow)", "1.91×", ends(nano), "1.07 to 1.17×"],
        ["[Seesaw](#seesaw)", "up to 1.78×, mean 1.36×", f"up to {times(max(seesaw))}, mean {mean}", ""],
    ]
    return table(["system", "published", "predicted", "published for what is predicted"], rows)


TABLES = {
    "TokenWeave": weave_tables,
    "T3": t3_tables,
    "NanoFlow": nano_tables,
    "NVRAR": nvrar_tables,
    "EnergonAI": energon_tables,
    "APEX": apex_tables,
    "Seesaw": seesaw_tables,
}


def page() -> str:
    """Return the page."""
    parts = [
        OPENING,
        f"By version {__version__} on {date.today()}; made by `python benchmarks/serving_gains.py --write`.",
    ]
    parts += [summary()]
    for name, tables in TABLES.items():
        section = SECTIONS[name]
        facts = [
            ["setting", section.setting],
            ["baseline", section.baseline],
            ["not stated, or not read", section.unknown],
        ]
        lines = "\n".join(wrapped(f"- *{label}*: {text}", "  ") for label, text in facts)
        parts += [f"## {name}", lines, *tables(), wrapped(section.why)]
    return "\n\n".join([*parts, CLOSING]) + "\n"


def main() -> None:
    """Print the page, and write it where asked to."""
    text = page()
    print(text)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
