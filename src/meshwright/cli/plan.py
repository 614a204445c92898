"""``meshwright plan``: search the best plans for a model on a cluster."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli import objective_options as goals
from meshwright.cli import plan_options as options
from meshwright.cli.options import AsJson, Debug
from meshwright.cli.output import check_writable, errors_as_messages, print_json, tell_remarks, write_all
from meshwright.cli.progress import Telling


def plan(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Zoo name, config.json, or hub id.")],
    on: goals.On,
    seq_len: Annotated[int, typer.Option("--seq-len", help="Tokens per sequence.")],
    global_batch: Annotated[int, typer.Option("--global-batch", help="Sequences per step.")],
    stack: Annotated[
        str, typer.Option("--stack", help="NAME or NAME@RELEASE of the framework.")
    ] = "megatron-core",
    precision: Annotated[str, typer.Option("--precision", help="bf16, fp16, fp8, mxfp8 or nvfp4.")] = "bf16",
    documents: options.Documents = None,
    routing: options.Routing = None,
    capacity: options.Capacity = None,
    task: Annotated[str, typer.Option("--task", help="pretrain, sft or lora.")] = "pretrain",
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Fix a choice: tp=8, memory_limit=0.5. Repeatable.")
    ] = None,
    forbid: Annotated[
        list[str] | None, typer.Option("--forbid", help="Exclude a value: tp=8, recompute=full. Repeatable.")
    ] = None,
    top: Annotated[int, typer.Option("--top", help="How many plans to show.")] = 5,
    stages: Annotated[
        str, typer.Option("--stages", help="Layers per stage: balanced, or cut anew by time or by memory.")
    ] = "balanced",
    schedule: options.Schedules = None,
    solve: options.Solve = None,
    solve_steps: options.SolveSteps = None,
    seed: options.Seed = None,
    objective: goals.Aim = "throughput",
    tokens: goals.Tokens = None,
    budget: goals.Budget = None,
    deadline: goals.Deadline = None,
    assume: goals.Assume = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the best plan to this file.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Search the best parallelization plans and say why."""
    with errors_as_messages(as_json, debug):
        from meshwright import api

        solving = options.solving(solve, solve_steps, seed)
        for file in [] if output is None else [output, *([output.with_suffix(".csv")] if solving else [])]:
            check_writable(file, "output")
        answer = api.plan(
            model,
            on=on,
            seq_len=seq_len,
            global_batch=global_batch,
            stack=stack,
            precision=precision,
            task=task,
            documents=options.lengths(documents),
            routing=options.routing(routing),
            capacity=options.capacity(capacity),
            keep=keep or (),
            forbid=forbid or (),
            top=top,
            stages=stages,
            schedule=schedule,
            solving=solving,
            objective=objective,
            tokens=tokens,
            budget_usd=budget,
            deadline_days=deadline,
            assume=assume or (),
            progress=Telling(),
        )
        files = answer.proposals[0].files(output) if output else {}
        write_all(files)
        if as_json:
            print_json(answer.to_json())
            return
        from meshwright.report.plans import render_answer

        tell_remarks(answer.proposals[0].report.remarks)
        render_answer(answer.to_json(), [str(path) for path in files])
