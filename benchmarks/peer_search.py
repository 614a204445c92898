"""Other planners beside ours: which of them install, and what llm-analysis and Galvatron think best of a question.

python benchmarks/peer_search.py [--write]; minutes. Makes an environment of its own for each planner, in a folder that
is removed, and needs a package index. Everybody's plan is priced by our predictor, which is no neutral judge.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from venv import create

from meshwright import __version__
from meshwright.model.load import load_model
from meshwright.plans.forms.short import ShortLayout, ShortPipeline, ShortPlan, WorkloadSpec
from meshwright.plans.resolve import resolve
from meshwright.search.space.constraints import format_choice
from meshwright.search.space.legal_plans import divisors
from meshwright.units import format_seconds
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer
from meshwright.verbs.predict.predict_plan import predicted

HERE = Path(__file__).parent
ANALYSIS, GALVATRON = "llm-analysis==0.2.2", "hetu-galvatron==2.4.0"
PEERS = {
    ANALYSIS: "asked below",
    GALVATRON: "asked below",
    "aiconfigurator==0.12.0": "not asked: it plans serving",
    "simumax": "not asked",
}
PATIENCE_S = 150
MODEL, PEER_MODEL = "llama-2-70b", "upstage_Llama-2-70b-instruct-v2"
DEVICE, DEVICES, SEQ_LEN, BATCH, NODE = "a100-sxm-80gb", 256, 4096, 512, 8
MICRO_BATCHES = (1, 2, 4, 8)
PROFILED = {"devices": 8, "memory_gib": 23, "batch": 128, "layers": 24, "seq_len": 2048}
"""What Galvatron is asked: BERT-large, of which it ships profiles."""
ALIKE = {
    "model_type": "gpt2",
    "n_embd": 1024,
    "n_head": 16,
    "n_layer": PROFILED["layers"],
    "n_positions": PROFILED["seq_len"],
    "vocab_size": 30_522,
}


def installed(package: str, folder: Path) -> str | None:
    """The last line of what an installation says where it fails, None where it succeeds."""
    create(folder, with_pip=True)
    command = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"not done after {PATIENCE_S} s"
    errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    return None if done.returncode == 0 else (errors or ["fails"])[-1]


def plans() -> Iterator[dict[str, int]]:
    """Every layout of the question that llm-analysis can be asked about."""
    arch = load_model(MODEL).architecture
    for tp in (d for d in divisors(NODE) if arch.kv_heads % d == 0):
        for pp in (d for d in divisors(DEVICES // tp) if arch.layers % d == 0):
            dp = DEVICES // (tp * pp)
            for micro_batch in (m for m in MICRO_BATCHES if BATCH % (dp * m) == 0):
                yield from (
                    {"tp": tp, "pp": pp, "dp": dp, "micro_batch": micro_batch, "full": f} for f in (0, 1)
                )


def header() -> ShortPlan:
    """The question as ours is asked."""
    workload = WorkloadSpec(seq_len=SEQ_LEN, global_batch=BATCH)
    return ShortPlan(plan=1, model=MODEL, cluster=f"{DEVICE} x {DEVICES}", workload=workload)


def as_ours(plan: dict[str, int]) -> ShortPlan:
    """A plan of llm-analysis as a plan of ours."""
    layout = ShortLayout(tp=plan["tp"], pp=plan["pp"], dp_shard=plan["dp"])
    pipeline = ShortPipeline(micro_batch=plan["micro_batch"])
    recompute = "full" if plan["full"] else "none"
    sharding = "zero1" if plan["dp"] > 1 else "none"
    changes = {"layout": layout, "pipeline": pipeline, "recompute": recompute, "sharding": sharding}
    return header().model_copy(update=changes)


def asked(python: Path, efficiency: float) -> dict[str, object]:
    """What llm-analysis says of all plans, if matrix products reach this part of the peak."""
    given = {
        "model_name": PEER_MODEL,
        "gpu_name": DEVICE,
        "global_batch_size": BATCH,
        "seq_len": SEQ_LEN,
        "total_num_tokens": BATCH * SEQ_LEN,
        "total_num_gpus": DEVICES,
        "flops_efficiency": efficiency,
    }
    question = json.dumps({"given": given, "plans": list(plans())})
    command = [str(python), str(HERE / "peer_question.py")]
    done = subprocess.run(command, input=question, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def rows(python: Path) -> Iterator[str]:
    """Theirs at two efficiencies, then ours."""
    tried = list(plans())
    for efficiency in (0.5, 1.0):
        found = asked(python, efficiency)
        fitting = [(s, i) for i, s in enumerate(found["times"]) if s is not None]
        seconds, best = min(fitting)
        report = predicted(resolve(as_ours(tried[best])))
        who = f"{ANALYSIS}, {efficiency:.0%} of the peak"
        yield _row(who, len(tried), len(fitting), found["cpu_s"], tried[best], seconds, report)
    began = time.process_time()
    ours = answer(PlanRequest(header(), top=1))
    spent, (one,) = time.process_time() - began, ours.proposals
    layout, pipeline = one.plan.layout, one.plan.pipeline
    chunks = pipeline.virtual_stages
    words = {"tp": layout.tp, "pp": f"{layout.pp}×{chunks}" if chunks > 1 else layout.pp, "cp": layout.cp}
    words |= {"dp": layout.dp_replicate * layout.dp_shard, "micro_batch": pipeline.micro_batch}
    words |= {"recompute": format_choice(one.plan.recompute)}
    yield _row("meshwright", ours.legal, ours.feasible, spent, words, one.report.step_time_s, one.report)


def _row(who, tried, fitting, cpu_s, plan, own_s, report) -> str:
    layout = ", ".join(f"{name} {value}" for name, value in plan.items())
    fits = "yes" if report.fits else "no"
    return (
        f"| {who} | {tried:,} | {fitting:,} | {cpu_s:.2f} | {layout} | {format_seconds(own_s)} "
        f"| {format_seconds(report.step_time_s)} | {fits} |"
    )


def galvatron_rows(python: Path) -> Iterator[str]:
    """Galvatron's search with its own profiles, then ours of a decoder of the same shape."""
    command = [str(python), str(HERE / "peer_galvatron.py")]
    done = subprocess.run(command, input=json.dumps(PROFILED), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    best = found["found"]
    plan = f"pp {best['pp']}, {best['chunks']} micro-batches, of layers (pp-tp-dp) {best['layers'].split(',')[0]}"
    size = f"{found['strategies']} strategies a layer"
    yield f"| {GALVATRON} | {size} | {found['cpu_s']:.2f} | {plan} | {format_seconds(best['step_s'])} |"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(ALIKE), encoding="utf-8")
        workload = WorkloadSpec(seq_len=PROFILED["seq_len"], global_batch=PROFILED["batch"])
        cluster = f"a100-sxm-40gb x {PROFILED['devices']}"
        began = time.process_time()
        ours = answer(
            PlanRequest(ShortPlan(plan=1, model=str(config), cluster=cluster, workload=workload), top=1)
        )
        spent, (one,) = time.process_time() - began, ours.proposals
    layout, pipeline = one.plan.layout, one.plan.pipeline
    plan = (
        f"pp {layout.pp}, tp {layout.tp}, dp {layout.dp_replicate * layout.dp_shard}, {one.plan.sharding}, "
    )
    plan += f"micro_batch {pipeline.micro_batch}, recompute {format_choice(one.plan.recompute)}"
    size = f"{ours.legal:,} legal plans"
    yield f"| meshwright | {size} | {spent:.2f} | {plan} | {format_seconds(one.report.step_time_s)} |"


def page() -> str:
    """The page that is kept under ``benchmarks/``."""
    with tempfile.TemporaryDirectory() as folder:
        said = {}
        for number, package in enumerate(PEERS):
            said[package] = installed(package, Path(folder) / str(number))
        body = (
            "llm-analysis did not install: nothing was asked."
            if said[ANALYSIS]
            else "\n".join(rows(Path(folder) / "0" / "bin" / "python"))
        )
        theirs = (
            "Galvatron did not install: nothing was asked."
            if said[GALVATRON]
            else "\n".join(galvatron_rows(Path(folder) / "1" / "bin" / "python"))
        )
    outcomes = "\n".join(f"| {name} | {why or 'installs'} | {PEERS[name]} |" for name, why in said.items())
    return f"""# Other planners

By version {__version__} on {date.today().isoformat()}; made by `python benchmarks/peer_search.py --write`, which
makes an environment for each of them.

| package | in an environment of its own | |
|---|---|---|
{outcomes}

## One question

{MODEL} on {DEVICES} {DEVICE}, {BATCH} × {SEQ_LEN:,} tokens. llm-analysis prices a plan by an efficiency that its user
supplies and searches nothing: the loop over tp, pp, micro-batch and full recomputation is ours, and it has no virtual
stages. "tried": plans priced by it, legal plans of ours, of which a bound spares most; "fit": of ours, those that were
priced; "by us": the same plan under our predictor, which is no neutral judge.

| planner | tried | fit | CPU s | best plan | by itself | by us | fits by us |
|---|--:|--:|--:|---|--:|--:|---|
{body}

## Galvatron's search

Its engine searches a strategy for every layer with times and memory that were profiled on the GPUs. Of the profiles
that the package ships it reads those of BERT-large ({PROFILED["layers"]} layers, 1,024 features); so it is asked for
{PROFILED["batch"]} × {PROFILED["seq_len"]:,} tokens on {PROFILED["devices"]} devices with {PROFILED["memory_gib"]} GiB.
Ours is asked for a decoder of the same shape on 8 A100 with 40 GB: the steps are of different devices and say nothing
about each other, the CPU seconds are of searches of equal size of model and cluster, in one run.

| planner | space | CPU s | best plan | by itself |
|---|---|--:|---|--:|
{theirs}
"""


if __name__ == "__main__":
    text = page()
    print(text)
    if "--write" in sys.argv:
        (HERE / "peer-search.md").write_text(text, encoding="utf-8")
