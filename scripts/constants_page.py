"""Generated parts of the page on constants: names with values, a prediction under given constants, a calibration."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from markdown_table import table

from meshwright import api
from meshwright.cluster.load import load_cluster
from meshwright.cost.constants import CURVE_NUMBERS, CURVES, PLATEAU, RECIPE, kernel_families
from meshwright.cost.named_constants import NamedConstant, named_constants, usual_value
from meshwright.cost.uncertainty.constant_draws import constant_draws
from meshwright.plans.files.yaml_text import read_mapping
from meshwright.stack.load import load_stack, stack_names
from meshwright.units import format_seconds

GIVEN = """\
nic_efficiency: 0.74                     # what nccl-tests reach of the cards
h100:gemm_efficiency: 0.71               # of one kernel family
h100:attention_efficiency.flash3: 0.52
megatron-core/host_s_per_layer: 0.0002   # of one stack
oversubscription.pod: 1.5                # of a tier of the cluster file
a100:gemm_efficiency: 0.85               # of another family: changes nothing on H100
"""
CLUSTER = """\
name: our-cluster
pools: [{device: h100-sxm-80gb, count: 64}]
tiers: [{name: pod, devices: 32, oversubscription: 2}]
"""
PLAN = """\
plan: 1
model: llama-3.1-8b
cluster: our-cluster.yaml
workload: {seq_len: 8192, global_batch: 128}
stack: megatron-core
layout: {tp: 2, pp: 2, dp_shard: 16}
sharding: zero1
"""
HIDDEN = {"h100:gemm_efficiency": 0.62, "nic_efficiency": 0.58, "oversubscription.pod": 2.6}
"""Constants that the runs of the example were priced with, instead of being measured."""
LONG_NUMBER = re.compile(r"\d+\.\d{6,}")
"""Digits that differ between processors are not shown."""
RUNS = (
    {"tp": 2, "pp": 2, "micro_batch": 1},
    {"tp": 4, "pp": 1, "micro_batch": 2},
    {"tp": 1, "pp": 4, "micro_batch": 1},
    {"tp": 8, "pp": 1, "micro_batch": 2},
)


def global_constants() -> str:
    """Constants of everything, with what each means and where its value comes from."""
    rows = csv.DictReader(_data("constants.csv"))
    heads = ("name", "value", "unit", "range", "meaning", "origin", "identified")
    return table(heads, ([f"`{row['name']}`", *(row[head] for head in heads[1:])] for row in rows))


def owned_constants() -> str:
    """Constants that each kernel family, stack, recipe or tier has of its own."""
    rows = list(csv.DictReader(_data("constants_by_owner.csv")))
    forms = {
        "family": "FAMILY:{}",
        "stack": "STACK/{}",
        "fp8_recipe": RECIPE + "RECIPE.{}",
        "tier": "{}.TIER",
    }
    names = [forms[row["owner"]].format(row["name"]) for row in rows]
    heads = ("unit", "range", "meaning")
    cells = ([f"`{name}`", *(row[head] for head in heads)] for name, row in zip(names, rows, strict=True))
    return table(("name", *heads), cells)


def kernel_constants() -> str:
    """Values of kernel constants by family, in the units of their names, and where they come from."""
    plain = [one for one in _of("family") if one.name.partition(".")[0] not in CURVES]
    numbers = [*CURVE_NUMBERS, PLATEAU]
    curves = (
        [f"`{family}`", f"`{curve}`", *_values(f"{family}:{curve}.{number}" for number in numbers)]
        for family in kernel_families()
        for curve in CURVES
    )
    return "\n".join(
        [
            table(
                ["FAMILY", *(f"`{one.name}`" for one in plain)],
                (
                    [f"`{family}`", *_values(f"{family}:{one.name}" for one in plain)]
                    for family in kernel_families()
                ),
            ),
            table(["FAMILY", "curve", *(f"`.{number}`" for number in numbers)], curves),
            table(
                ["FAMILY", "measured", "links of its curves, GB/s", "origin"],
                (
                    [f"`{row['device']}`", row["measured"], row["measured_scaleup_gb_s"], row["origin"]]
                    for row in csv.DictReader(_data("kernels.csv"))
                ),
            ),
        ]
    )


def stack_constants() -> str:
    """Values of the stacks' constants, and which of them were fitted to runs of that stack."""
    fitted = set(constant_draws().names)
    numbers = [one.name for one in _of("stack")]

    def row(stack: str) -> Iterator[object]:
        yield f"`{stack}`"
        for number in numbers:
            mark = " (fitted)" if f"{stack}/{number}" in fitted else ""
            yield f"{usual_value(f'{stack}/{number}'):.4g}{mark}"
        yield load_stack(stack).source

    heads = ["STACK", *(f"`{number}`" for number in numbers), "facts from"]
    return table(heads, map(row, stack_names()))


def recipe_constants() -> str:
    """Values of the costs of recipes of fp8."""
    rows = csv.DictReader(_data("fp8_recipes.csv"))
    heads = ("product_rate", "quantise_bytes", "origin")
    cells = ([f"`{row['recipe']}`", *(row[head] for head in heads)] for row in rows)
    return table(("RECIPE", *(f"`{head}`" for head in heads[:2]), "origin"), cells)


def constants_given() -> str:
    """A prediction without and with a file of constants."""
    with TemporaryDirectory() as name:
        plan = _example(Path(name))
        rows = []
        for label, constants in (("usual", None), ("given", read_mapping(GIVEN, "constants"))):
            report = api.predict(plan, constants=constants)  # type: ignore[arg-type]
            ends = f"{format_seconds(report.step_time_low_s)} to {format_seconds(report.step_time_high_s)}"  # type: ignore[arg-type]
            assert report.interval is not None
            spread = report.interval["parts"]["constants"]
            rows.append((label, format_seconds(report.step_time_s), ends, f"{spread:.3f}"))
    heads = ("constants", "step", "80 % interval", "`parts.constants`")
    return f"```yaml\n{GIVEN}```\n\n{table(heads, rows)}"


def calibrated_file() -> str:
    """Part of the cluster file that ``calibrate`` writes, for runs priced with hidden constants."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        plan, runs = _example(folder), folder / "runs.csv"
        rows = [_run(number, degrees, plan) for number, degrees in enumerate(RUNS, 1)]
        with runs.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        text = api.cluster_file(api.calibrate(runs, on=str(folder / "our-cluster.yaml")))
    keys = ("tiers", "calibration", "calibrated")
    lines, shown = [], False
    for line in text.splitlines():
        shown = line.partition(":")[0] in keys if line[:1].isalpha() else shown
        lines += [line] if shown else []
    shorter = LONG_NUMBER.sub(lambda number: f"{float(number[0]):.5g}", "\n".join(lines))
    return f"```yaml\n{shorter}\n```\n"


def _run(number: int, degrees: Mapping[str, int], plan: Path) -> dict[str, object]:
    """Return a row of the table of runs: what ``ingest`` would read from a log."""
    settings = [f"{name}={value}" for name, value in degrees.items()]
    step_s = api.predict(plan, settings=settings, constants=HIDDEN).step_time_s
    shape = {"model": "llama-3.1-8b", "device": "h100-sxm-80gb", "devices": 64, "seq_len": 8192}
    made = {
        "global_batch": 128,
        "stack": "megatron-core",
        "sharding": "zero1",
        "step_time_s": f"{step_s:.4f}",
    }
    return {"run_id": number, "source": "own", **shape, **degrees, **made}


def _example(folder: Path) -> Path:
    cluster, plan = folder / "our-cluster.yaml", folder / "plan.yaml"
    cluster.write_text(CLUSTER, encoding="utf-8")
    plan.write_text(PLAN, encoding="utf-8")
    assert load_cluster(cluster).devices == 64
    return plan


def _of(owner: str) -> list[NamedConstant]:
    return [one for one in named_constants() if one.owner == owner]


def _values(names: Iterable[str]) -> list[str]:
    return [f"{usual_value(name):.4g}" for name in names]


def _data(name: str) -> list[str]:
    return files("meshwright.cost").joinpath("data", name).read_text(encoding="utf-8").splitlines()
