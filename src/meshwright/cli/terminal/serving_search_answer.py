"""Answer ``plan`` for plans that serve, and refuse options that only plans that train have."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meshwright.cli.options.serving_options import SERVING, SHARED, TRAINING_DEFAULTS
from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.output import check_writable, write_all
from meshwright.errors import InputError, Problem
from meshwright.verbs.plan.serving.serving_answer import answer_serving
from meshwright.verbs.plan.serving.serving_request import ServingRequest


def planned_serving(given: Mapping[str, Any]) -> Answer:
    """Answer ``plan`` with its arguments by name."""
    file = None if given["output"] is None else Path(given["output"])
    models = [given["model"]] if isinstance(given["model"], str) else list(given["model"])
    refused = [*_of_training(given), *_of_models(models)]
    on = (given["on"],) if isinstance(given["on"], str) else tuple(given["on"])
    request = ServingRequest(
        model=models[0] if models else "",
        on=on,
        allow_quantise=_formats(given["allow_quantise"]),
        assume=_several(given["assume"]),
        **{name: given[name] for name in AS_THEY_ARE},
    )
    if file is not None:
        check_writable(file, "output")
    found = answer_serving(request, refused)
    data, best = found.to_json(), found.proposals[0]
    files = {} if file is None else best.files(file)
    write_all(files)
    written = [str(path) for path in files]

    def render(data: dict[str, Any]) -> None:
        from meshwright.present.plan_answers.serving_plans import render_serving_plans

        render_serving_plans(data, written, why=given["why"])

    return Answer(data, render, remarks=best.report.remarks)


def refuse_options_of_requests(given: Mapping[str, Any]) -> None:
    """Raise InputError for options of plans that serve, in a question of a plan that trains."""
    rule = "is an option for plans that serve, which --input-tokens and --output-tokens ask for"
    problems = [
        Problem(name, given[name], rule, f"leave {name} out, or give --input-tokens in place of --seq-len")
        for name in SERVING
        if given.get(name) is not None
    ]
    if problems:
        raise InputError(problems)


def _of_training(given: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the options that only plans that train have."""
    rule = "is an option for plans that train, and --input-tokens asks for one that serves"
    for name, value in given.items():
        usual: tuple[Any, ...] = (TRAINING_DEFAULTS.get(name), None, (), [])
        if name not in (*SERVING, *SHARED) and value not in usual:
            yield Problem(
                name, value if isinstance(value, int | float) else str(value), rule, f"leave {name} out"
            )


def _of_models(models: list[str]) -> Iterator[Problem]:
    if len(models) != 1:
        rule = "plans that serve are searched for one model"
        yield Problem("model", ", ".join(models), rule, "one of them")


def _formats(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value or ()
    return tuple(dict.fromkeys(name.strip() for name in names))


def _several(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


AS_THEY_ARE = (
    *("input_tokens", "output_tokens", "concurrency", "rate", "max_ttft_ms", "max_tpot_ms"),
    *("stack", "objective", "top", "price", "calibration"),
)
"""Options that need no reading."""
