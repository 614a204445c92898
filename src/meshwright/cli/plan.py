"""``meshwright plan``: search the best plans for a model on a cluster."""

from typing import Annotated

import typer

from meshwright.cli.options import objective_options as goals
from meshwright.cli.options import plan_options as options
from meshwright.cli.options import serving_options as serving
from meshwright.cli.options.shared_options import AsJson, Calibration, Constants, Debug
from meshwright.cli.options.workload_options import size_option
from meshwright.cli.terminal.output import (
    errors_as_messages,
    print_answer,
)
from meshwright.cli.terminal.progress import ProgressLine


def plan(
    model: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Zoo name, config.json, or hub id. Of several the largest within the limits.",
        ),
    ],
    on: goals.On,
    seq_len: Annotated[int | None, size_option("--seq-len", "Tokens per sequence of a training.")] = None,
    global_batch: Annotated[int | None, size_option("--global-batch", "Sequences per step.")] = None,
    batch_range: goals.Batches = None,
    input_tokens: serving.InputTokens = None,
    output_tokens: serving.OutputTokens = None,
    concurrency: serving.Concurrency = None,
    rate: serving.Rate = None,
    max_ttft_ms: serving.MaxTtft = None,
    max_tpot_ms: serving.MaxTpot = None,
    allow_quantise: serving.AllowQuantise = None,
    stack: options.StackName = None,
    precision: options.Precision = "bf16",
    fp8_recipe: options.Fp8Recipe = None,
    optimizer: options.OptimizerText = "adamw",
    adapter: options.AdapterText = None,
    documents: options.Documents = None,
    encoder_tokens: options.EncoderTokens = None,
    images: options.ImagesText = None,
    routing: options.Routing = None,
    capacity: options.Capacity = None,
    task: Annotated[str, typer.Option("--task", help="pretrain, sft or lora.")] = "pretrain",
    keep: options.Keep = None,
    forbid: options.Forbid = None,
    allow: options.Allow = None,
    top: Annotated[int, typer.Option("--top", help="Number of plans to show.")] = 5,
    stages: Annotated[
        str, typer.Option("--stages", help="Layers per stage: balanced, or rebalanced by time or by memory.")
    ] = "balanced",
    layers: Annotated[
        str,
        typer.Option(
            "--layers",
            help="Layouts and recomputation: uniform for all layers, by ranges, or auto: ranges if nothing else fits.",
        ),
    ] = "auto",
    schedule: options.Schedules = None,
    recommend: options.Recommends = "robust",
    solve: options.Solve = None,
    solve_steps: options.SolveSteps = None,
    seed: options.Seed = None,
    objective: goals.Aim = None,
    tokens: goals.Tokens = None,
    budget: goals.Budget = None,
    deadline: goals.Deadline = None,
    power: goals.Power = None,
    sure: goals.Sure = None,
    price: goals.PriceTerm = "on-demand",
    assume: goals.Assume = None,
    constants: Constants = None,
    calibration: Calibration = None,
    output: options.Output = None,
    csv: goals.ClusterCsv = None,
    markdown: goals.ClusterMarkdown = None,
    report: options.ReportPage = None,
    why: options.Why = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Search the best parallelization plans and give the reasons."""
    given = dict(locals())
    with errors_as_messages(as_json, debug, why=why):
        if serving.asks_to_serve(given):
            from meshwright.cli.terminal.serving_search_answer import planned_serving

            print_answer(planned_serving(given), as_json)
            return
        from meshwright.cli.terminal.search_answer import planned

        print_answer(planned(given, ProgressLine()), as_json)
