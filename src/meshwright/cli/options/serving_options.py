"""Options of ``plan`` for plans that serve."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from meshwright.cli.options.workload_options import size_option

InputTokens = Annotated[
    int | None, size_option("--input-tokens", "Plan to serve requests with prompts of so many tokens.")
]
OutputTokens = Annotated[int | None, size_option("--output-tokens", "Tokens that are written for a request.")]
Concurrency = Annotated[
    int | None,
    size_option("--concurrency", "Requests at once on the whole cluster; without a load it is searched."),
]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="R", help="Requests that arrive in a second, in its place.")
]
MaxTtft = Annotated[
    float | None, typer.Option("--max-ttft-ms", metavar="MS", help="Most mean time to the first token.")
]
MaxTpot = Annotated[
    float | None, typer.Option("--max-tpot-ms", metavar="MS", help="Most mean time per further token.")
]
AllowQuantise = Annotated[
    str | None,
    typer.Option(
        "--allow-quantise",
        metavar="FORMAT,…",
        help="Formats of weights and caches to search besides the released ones: fp8,fp4.",
    ),
]
SERVING = (
    *("input_tokens", "output_tokens", "concurrency", "rate", "max_ttft_ms", "max_tpot_ms"),
    *("allow_quantise", "calibration"),
)
"""Options of plans that serve alone."""
ASKS_TO_SERVE = ("input_tokens", "output_tokens")
"""Those that make a question one of serving."""
SHARED = ("model", "on", "stack", "objective", "top", "price", "assume", "output", "why", "as_json", "debug")
"""Options of both kinds of plans."""
TRAINING_DEFAULTS = {
    "precision": "bf16",
    "optimizer": "adamw",
    "task": "pretrain",
    "stages": "balanced",
    "layers": "auto",
    "recommend": "robust",
}
"""Values of options of plans that train which say nothing; the others are then absent."""


class PlanCommand(TyperCommand):
    """``plan``, which needs the length of sequences unless it is asked for requests."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the arguments."""
        given = {word.partition("=")[0] for word in args}
        serves = any(f"--{name.replace('_', '-')}" in given for name in ASKS_TO_SERVE)
        for parameter in self.params:
            if parameter.name == "seq_len":
                parameter.required = not serves
        return super().parse_args(ctx, args)


def asks_to_serve(given: Mapping[str, Any]) -> bool:
    """Return true if a question is one of serving."""
    return any(given.get(name) is not None for name in ASKS_TO_SERVE)
