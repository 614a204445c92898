"""Train a small model with systems that communicate less, beside plain data parallelism: loss over tokens and bytes.

Two ranks on this machine's CPU, three seeds, the same weights and data for all. Periods and codecs are those of the
systems, shortened to the run. Losses are measured; bytes are those that `predict` counts for a rank, which `verify`
holds against logged ones.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, pstdev

from loss_curves import SEEDS, TEXT, Keys, Lab, Losses

from meshwright import api
from meshwright.present.svg.line_chart import LineChart, line_chart

STEPS = 96
SHOWN = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96)
LAST = 8
WORKLOAD = {"seq_len": 64, "global_batch": 8}
OUTER = {"nesterov": {"lr": 0.7, "momentum": 0.9}}
LOOSE: Keys = {"state": "parameter", "over": "dp_replicate"}
EXACT: Keys = {"state": "gradient", "over": "dp_replicate"}
SYSTEMS: Mapping[str, tuple[Keys, ...]] = {
    "data parallelism": (),
    "DiLoCo, 12 steps": ({**LOOSE, "every": 12, "outer": OUTER},),
    "Streaming DiLoCo, 2 fragments": (
        {
            **LOOSE,
            "every": 12,
            "fragments": 2,
            "delay": 1,
            "merge": 0.5,
            "compress": {"quantise": "e3m0", "bucket": 1024},
            "outer": {"nesterov": {"lr": 0.4, "momentum": 0.9}},
        },
    ),
    "Eager DiLoCo, 12 steps": ({**LOOSE, "every": 12, "delay": 12, "own": "fresh", "outer": OUTER},),
    "CO2, 12 steps": (
        {**LOOSE, "every": 12, "delay": 12, "outer": {"momentum": {"lr": 1.0, "momentum": 0.2}}},
    ),
    "DES-LOC, 4, 12 and 24 steps": (
        {**LOOSE, "every": 4},
        {**LOOSE, "state": "first_moment", "every": 12},
        {**LOOSE, "state": "second_moment", "every": 24},
    ),
    "INTELLECT-1, 12 steps": ({**LOOSE, "every": 12, "compress": {"quantise": "int8"}, "outer": OUTER},),
    "PowerSGD, rank 4": ({**EXACT, "compress": {"low_rank": 4, "error_feedback": True}},),
    "TernGrad": ({**EXACT, "compress": {"ternary": {"clip": 2.5}}},),
}
"""Entries by system; the first is what the others are compared with."""


@dataclass(frozen=True)
class Curves:
    """Losses of every step by system and seed, and the bytes that a rank sends in a step, in the mean of a round."""

    losses: Losses
    bytes_per_step: Mapping[str, float]


def trained(lab: Lab) -> Curves:
    """Train all systems; a process for each seed."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        everything = list(pool.map(partial(_of_seed, lab), SEEDS))
    losses = {name: [of[name] for of in everything] for name in SYSTEMS}
    return Curves(losses, {name: _sent(lab, name) for name in SYSTEMS})


def _keys(name: str) -> Keys:
    return {
        "cluster": "h100-sxm-80gb x 2",
        "layout": {"dp_replicate": 2},
        "pipeline": {"micro_batch": 4},
        "synchronise": list(SYSTEMS[name]),
    }


def _of_seed(lab: Lab, seed: int) -> dict[str, list[float]]:
    return {name: lab.run(name, _keys(name), seed, TEXT) for name in SYSTEMS}


def _sent(lab: Lab, name: str) -> float:
    plan = json.loads((lab.folder / f"{name}-{SEEDS[0]}.yaml").read_text())
    report = api.predict(lab.folder / f"{name}-{SEEDS[0]}.yaml").to_json()
    assert plan["workload"] == WORKLOAD
    return sum(float(row["sent_bytes_per_step"]) for row in report["synchronise"])


def table(found: Curves) -> list[str]:
    """Return the lines of the table."""
    usual = next(iter(found.bytes_per_step.values()))
    lines = [
        f"| system | loss of the last {LAST} steps | spread over seeds | bytes of a rank and step | less than "
        "data parallelism |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, runs in found.losses.items():
        ends, size = [mean(run[-LAST:]) for run in runs], found.bytes_per_step[name]
        lines.append(
            f"| {name} | {mean(ends):.4f} | {pstdev(ends):.4f} | {size:,.0f} | {usual / size:,.1f} times |"
        )
    return lines


def pictures(found: Curves) -> dict[str, str]:
    """Return the drawings by what is across: mean losses over seeds, over tokens and over bytes."""
    tokens = WORKLOAD["seq_len"] * WORKLOAD["global_batch"]

    def drawn(across: str, each: Mapping[str, float]) -> str:
        lines = {
            name: [(step * each[name], mean(run[step - 1] for run in runs)) for step in SHOWN]
            for name, runs in found.losses.items()
        }
        title = f"Loss over {across}, mean of {len(SEEDS)} seeds"
        return line_chart(LineChart(title=title, across=across, up="loss", lines=lines, logarithmic=True))

    return {
        "tokens": drawn("tokens", dict.fromkeys(found.losses, float(tokens))),
        "bytes": drawn("bytes that a rank has sent", found.bytes_per_step),
    }


def laboratory(folder: Path) -> Lab:
    """Return a laboratory in a folder."""
    lab = Lab(folder, STEPS)
    lab.prepare()
    return lab
