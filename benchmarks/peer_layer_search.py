"""Solve the problems over layers that Galvatron's engine solves, with both solvers in one run.

``python benchmarks/peer_layer_search.py --write`` makes ``peer-layer-search.md``, in an environment of Galvatron's own;
``--python PATH`` takes one that is there.
"""

import json
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np
from peer_search import ALIKE, GALVATRON, HERE, PROFILED, installed

from meshwright import __version__
from meshwright.plans.forms.short import ShortLayout, ShortPipeline, ShortPlan, WorkloadSpec
from meshwright.plans.resolve import resolve
from meshwright.search.layers.strategy_assignment import LayerCosts, least_seconds
from meshwright.units import format_seconds
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer
from meshwright.verbs.predict.predict_plan import predicted

PAGE = HERE / "peer-layer-search.md"
EQUAL = 1e-9


def engine(python: Path) -> tuple[dict, list[dict]]:
    """Return what Galvatron's engine finds, and the problems over layers that it solves."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [str(python), str(HERE / "peer_galvatron.py"), file.name]
        done = subprocess.run(command, input=json.dumps(PROFILED), capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1]), json.loads(
            Path(file.name).read_text(encoding="utf-8")
        )


def solved(problem: dict) -> dict[str, float]:
    """Return the least seconds of a problem for each way to hold what is no layer; infinite where nothing fits."""
    seconds, size = np.array(problem["seconds"]), np.array(problem["bytes"], dtype=float)
    strategies = seconds.shape[1]
    rows, kinds = np.unique(np.concatenate([seconds, size], 1), axis=0, return_inverse=True)
    peaks = np.zeros((len(rows), strategies))
    costs = LayerCosts(rows[:, :strategies], rows[:, strategies:], peaks, np.array(problem["change"]))
    found = {}
    for key, (held, other) in problem["others"].items():
        room = problem["capacity"] - held
        best = least_seconds(costs, kinds.reshape(-1).tolist(), room, 10**6) if room > 0 else None
        found[key] = np.inf if best is None else best[0] + other
    return found


def compared(problems: list[dict]) -> dict[str, float]:
    """Return counts of equal and unequal answers, the largest relative difference, and CPU seconds of both."""
    result = {"answers": 0, "equal": 0, "quicker": 0, "slower": 0, "neither": 0, "worst": 0.0, "ours_s": 0.0}
    for problem in problems:
        began = time.process_time()
        ours = solved(problem)
        result["ours_s"] += time.process_time() - began
        for key, theirs in problem["total"].items():
            result["answers"] += 1
            both = np.isfinite([theirs, ours[key]])
            if not both.any():
                result["neither"] += 1
                continue
            difference = ours[key] / theirs - 1 if both.all() else (1.0 if both[0] else -1.0)
            result["worst"] = max(result["worst"], abs(difference))
            word = "equal" if abs(difference) <= EQUAL else "quicker" if difference < 0 else "slower"
            result[word] += 1
    return result | {"theirs_s": sum(problem["cpu_s"] for problem in problems)}


def under_our_model(best: dict) -> str:
    """Return rows of a table: their plan and ours, by our predictor, for a decoder of the same shape on A100."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(ALIKE), encoding="utf-8")
        workload = WorkloadSpec(seq_len=PROFILED["seq_len"], global_batch=PROFILED["batch"])
        cluster = f"a100-sxm-40gb x {PROFILED['devices']}"
        header = ShortPlan(plan=1, model=str(config), cluster=cluster, workload=workload, stack="meshwright")
        pp, tp, dp = (int(degree) for degree in best["layers"].split(",")[0].split("-"))
        micro_batch = PROFILED["batch"] // (dp * best["chunks"])
        layout, pipeline = ShortLayout(pp=pp, tp=tp, dp_replicate=dp), ShortPipeline(micro_batch=micro_batch)
        theirs = header.model_copy(update={"layout": layout, "pipeline": pipeline, "sharding": "none"})
        began = time.process_time()
        ours = answer(PlanRequest(header, top=1, layers="ranges", recommend="fastest"))
        spent = time.process_time() - began
        report = predicted(resolve(theirs))
    fastest = ours.fastest
    found = fastest.plan
    text = f"pp {found.layout.pp} tp {found.layout.tp} dp {found.layout.dp_replicate * found.layout.dp_shard}"
    text += f" {found.sharding}, micro-batch {found.pipeline.micro_batch}"
    if fastest.long is not None:
        text += f", {len(fastest.long.layouts)} layouts"
    fits = ["fits" if one.fits else "does not fit" for one in (report, fastest.report)]
    return (
        f"| {GALVATRON} | pp {pp} tp {tp} dp {dp}, micro-batch {micro_batch} | "
        f"{format_seconds(report.step_time_s)}, {fits[0]} | |\n"
        f"| meshwright | {text} | {format_seconds(fastest.report.step_time_s)}, {fits[1]} | {spent:.1f} |"
    )


def page(python: Path) -> str:
    """Return the page."""
    found, problems = engine(python)
    result, best = compared(problems), found["found"]
    layers = best["layers"].split(",")[0]
    return f"""# Layer search against Galvatron's engine

By version {__version__} on {date.today()} with `python benchmarks/peer_layer_search.py --write`.

{GALVATRON} is asked for BERT-large ({PROFILED["layers"]} layers, {PROFILED["batch"]} × {PROFILED["seq_len"]:,} tokens)
on {PROFILED["devices"]} devices with {PROFILED["memory_gib"]} GiB, with the times and memory that it ships. Its search
has {found["strategies"]} strategies a layer and takes {found["cpu_s"]:.1f} CPU s. It finds pp {best["pp"]},
{best["chunks"]} micro-batches and {layers} (pp-tp-dp) for all layers: {format_seconds(best["step_s"])} by its costs.

## Its problems over layers

On the way it solves {len(problems):,} problems over the layers of stages. Each is solved here again, with the same
seconds, bytes, changes of strategy and capacity: {result["answers"]:,} answers, one for each way to hold what is no
layer. So both plans are compared under its model of costs.

| | |
|---|--:|
| answers that are equal (relative difference at most {EQUAL:g}) | {result["equal"]:,} |
| neither finds anything that fits | {result["neither"]:,} |
| quicker here | {result["quicker"]:,} |
| slower here | {result["slower"]:,} |
| largest relative difference | {result["worst"]:.1g} |
| CPU s of its core (C++) | {result["theirs_s"]:.1f} |
| CPU s here (NumPy) | {result["ours_s"]:.1f} |

## Under our model of costs

A decoder of the same shape on {PROFILED["devices"]} A100 with 40 GB, which are not the devices of its profile.

| planner | plan | step | CPU s |
|---|---|--:|--:|
{under_our_model(best)}
"""


def main() -> None:
    """Print the page, or write it."""
    if "--python" in sys.argv:
        text = page(Path(sys.argv[sys.argv.index("--python") + 1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            said = installed(GALVATRON, Path(folder))
            assert said is None, said
            text = page(Path(folder) / "bin" / "python")
    if "--write" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
