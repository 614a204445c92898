"""Predict published serving runs with their groups left out, and write the page of their errors.

    python benchmarks/serving.py RUNS.csv            prints the page
    python benchmarks/serving.py RUNS.csv --write    also writes benchmarks/serving.md

The table of runs is not part of the repository; the page names where each of them was published.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import table
from left_out_groups import DRAWS, LEARNED, Draw, draws, left_out, without_levels

from meshwright import __version__
from meshwright.cost.serving.levels import METRICS, Group
from meshwright.model.load import load_model
from meshwright.present.console import percent
from meshwright.validation.serving.layout_choice import judge, layout_figures, layout_groups
from meshwright.validation.serving.predict_rows import predict_rows
from meshwright.validation.serving.predict_serving import predict_serving
from meshwright.validation.serving.read_serving_table import read_serving_table
from meshwright.validation.serving.serving_prediction import ServingPrediction
from meshwright.validation.serving.serving_row import ServingRow, SkippedRow
from meshwright.validation.serving.serving_summary import metric_errors, summarise_serving
from meshwright.validation.serving.validate_serving import validate_serving

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "throughput": "throughput"}
PEER = {"ttft": "54.1 %", "tpot": "19.0 %", "throughput": ""}
"""AIConfigurator 0.12.0 on 151 coherent rows that it predicted of a sample of its own table."""
TARGETS = {
    ("TPOT", "all"): "≤ 15 %",
    ("TPOT", "dense models"): "≤ 11 %",
    ("TTFT", "all"): "≤ 38 %",
    ("TTFT", "vLLM"): "≤ 24 %",
    ("throughput", "all"): "≤ 16 %",
}
AFTER = {"ttft": "≤ 30 %", "tpot": "≤ 10.5 %", "throughput": "≤ 15 %"}
Kind = Callable[[ServingRow], bool]


def has_experts(row: ServingRow) -> bool:
    """Whether a run's model has experts."""
    return load_model(row.inputs.model).architecture.moe is not None


KINDS: dict[str, Kind] = {
    "all": lambda row: True,
    "one pool": lambda row: len(row.inputs.workers) == 1,
    "prefill and decode apart": lambda row: len(row.inputs.workers) == 2,
    "dense models": lambda row: not has_experts(row),
    "models with experts": has_experts,
    "vLLM": lambda row: row.inputs.engine == "vllm",
    "SGLang": lambda row: row.inputs.engine == "sglang",
    "TensorRT-LLM": lambda row: row.inputs.engine == "tensorrt-llm",
}


def errors(rows: Sequence[ServingRow], predicted: Sequence[ServingPrediction]) -> str:
    """Errors by metric and kind of run."""
    lines: list[Iterable[object]] = []
    for metric, name in NAMES.items():
        for kind, of_kind in KINDS.items():
            chosen = [number for number, row in enumerate(rows) if of_kind(row)]
            one = metric_errors(metric, [rows[n] for n in chosen], [predicted[n] for n in chosen])
            if one["n"]:
                figures = [percent(one[key]) for key in ("median_ape", "mape", "p90_ape")]
                inside = percent(one["interval_coverage"])
                target = TARGETS.get((name, kind), "")
                peer = PEER[metric] if kind == "all" else ""
                bias = f"{one['bias']:+.1%}"
                lines.append((f"{name}, {kind}", one["n"], target, *figures, bias, inside, peer))
    header = ["runs", "n", "target", "median", "mean", "p90", "bias", "in 80 % interval", "AIConfigurator"]
    return table(header, lines)


def after_five(found: dict[str, dict[Group, list[Draw]]]) -> str:
    """Errors of the other runs of a group after five were learned."""
    lines: list[Iterable[object]] = []
    for metric, of_groups in found.items():
        all_draws = [draw for group in of_groups.values() for draw in group]

        def joined(name: str, draws_of: list[Draw] = all_draws) -> Any:
            return np.concatenate([getattr(draw, name) for draw in draws_of])

        medians = [percent(float(np.median(_ape(joined(n))))) for n in ("before", "after", "shifted")]
        means = [f"{np.abs(joined(n)).mean():.3f}" for n in ("before", "after", "shifted")]
        inside = percent(float(joined("inside").mean()))
        name = NAMES[metric]
        lines.append((name, len(of_groups), AFTER[metric], *medians, *means, inside))
    header = ["", "groups", "target", "median before", "after", "shift by median"]
    header += ["mean of logarithms before", "after", "shift by median", "in 80 % interval"]
    return table(header, lines)


def worse_groups(found: dict[str, dict[Group, list[Draw]]]) -> str:
    """Groups whose mean error grows in the mean of all draws."""
    lines: list[Iterable[object]] = []
    for metric, of_groups in found.items():
        grown = []
        for group, of_group in of_groups.items():
            before = float(np.mean([np.abs(draw.before).mean() for draw in of_group]))
            after = float(np.mean([np.abs(draw.after).mean() for draw in of_group]))
            grown.append((after - before, before, group))
        more = [one for one in grown if one[0] > 0]
        largest = max(grown, key=lambda one: one[0])
        mean = float(np.mean([one[0] for one in grown]))
        told = f"{largest[0]:+.3f} on {largest[1]:.3f} ({largest[2]})"
        lines.append((NAMES[metric], f"{mean:+.3f}", f"{len(more)} of {len(grown)}", told))
    return table(["", "mean change of a group", "groups that grow", "the largest change"], lines)


def _ape(logs: Any) -> Any:
    return np.abs(np.exp(-logs) - 1)


def layouts(rows: Sequence[ServingRow], predicted: Sequence[ServingPrediction]) -> str:
    """The choice among layouts, by source."""
    rates = [one.output_tokens_per_s_per_device for one in predicted]
    throughput = np.array([np.nan if rate is None else rate.value for rate in rates])
    choices = [(group.source, judge(group)) for group in layout_groups(rows, throughput)]
    keys = ["top1", "within_5_percent", "pairs_right", "regret_mean"]
    keys += ["largest_tp_regret_mean", "smallest_regret_mean"]
    lines: list[Iterable[object]] = [("*target*", "", "≥ 75 %", "≥ 88 %", "≥ 88 %", "≤ 2.5 %", "", "")]
    for source in ["all", *dict.fromkeys(source for source, _ in choices)]:
        figures = layout_figures([choice for name, choice in choices if source in ("all", name)])
        lines.append((source, figures["groups"], *(percent(figures[key]) for key in keys)))
    header = ["source", "groups", "best", "within 5 %", "pairs right", "regret", "largest tp", "smallest"]
    return table(header, lines)


def page(path: str) -> str:
    """The page that is kept under ``benchmarks/``."""
    items = [*read_serving_table(path)]
    read = [item for item in items if isinstance(item, ServingRow)]
    reasons = predict_rows([row.inputs for row in read]).reasons
    rows = [row for row, reason in zip(read, reasons, strict=True) if not reason]
    skipped = [item for item in items if isinstance(item, SkippedRow)]
    skipped += [
        SkippedRow(id=row.id, source=row.source, reason=reason, complete=True)
        for row, reason in zip(read, reasons, strict=True)
        if reason
    ]
    known = left_out(rows)
    predicted = without_levels(known)
    coverage = summarise_serving(rows, predicted, skipped)["all"]["coverage"]
    found: dict[str, dict[Group, list[Draw]]] = {metric: draws(known, metric) for metric in METRICS}
    shipped = validate_serving(path, predict_serving)
    return f"""# Serving

Published, measured serving runs beside predictions; nothing here was run by us. Predicted by version {__version__} on
{date.today().isoformat()}. Made by `python benchmarks/serving.py RUNS.csv --write` from a table of these runs, which
was put together from the sources named below and is not part of the repository. The figures are those of
[accuracy](../docs/accuracy.md): errors of predicted/measured, throughput in output tokens/s of a device.

AIConfigurator's figures are published ones of release 0.12.0 on a sample of 416 rows of its own table, of which it
predicted 40 % (66 % without rows that fail for outside reasons); errors are of 151 coherent ones. Its TTFT has a bias
of -49 %, its TPOT of -1 %. The samples overlap and are not the same.

## Each group left out

A group is a model on a device under an engine ({len(known.spreads)} of them). Its level is 0, the three numbers of its
engine were fitted without it ([serving-constants.csv](serving-constants.csv)), and the intervals come from other
groups. Forms and constants of kernels were not fitted on whole runs.

Coverage {percent(coverage)} (target ≥ 97 %; AIConfigurator 40 %); intervals are to hold 75 to 85 %.

{errors(rows, predicted)}
## Choice among layouts, with each group left out

Regret is the measured time of a token over the least of the layouts, minus 1; beside it that of two rules.

{layouts(rows, predicted)}
## After {LEARNED} runs of a left-out group

{DRAWS} draws of {LEARNED} runs of every group that has more; errors of its other runs. Compared with a shift of all
predictions by the median error of the drawn runs.

{after_five(found)}
The expected change of the mean absolute logarithm, group by group; of a group whose level is 0 five runs tell noise.

{worse_groups(found)}
## With the levels that are shipped

Levels were learned on these very runs, so this is no test.

{errors(shipped.runs, shipped.predicted)}
## Not predicted

{table(["reason", "runs"], ((reason, len(ids)) for reason, ids in shipped.skipped_ids().items()))}"""


if __name__ == "__main__":
    text = page(sys.argv[1])
    print(text)
    if "--write" in sys.argv[2:]:
        (Path(__file__).parent / "serving.md").write_text(text, encoding="utf-8")
