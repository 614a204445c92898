"""Answer ``plan`` from its options by name: search, then write the plan, tables of clusters and the report."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from meshwright import api
from meshwright.cli.options.plan_options import adapter as read_adapter
from meshwright.cli.options.plan_options import capacity as read_capacity
from meshwright.cli.options.plan_options import images as read_images
from meshwright.cli.options.plan_options import lengths, solving
from meshwright.cli.options.plan_options import optimizer as read_optimizer
from meshwright.cli.options.plan_options import routing as read_routing
from meshwright.cli.options.serving_options import asks_to_serve
from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.output import check_writable, error_data, write_all
from meshwright.cli.terminal.serving_search_answer import planned_serving, refuse_options_of_requests
from meshwright.errors import InfeasibleError
from meshwright.present.page.report_page import reasons_page, report_page
from meshwright.present.plan_answers.plan_output import cluster_tables, render_plan_answer
from meshwright.search.choice_reasons import strongest_reasons

Progress = Callable[[str, float], None]


def planned(given: Mapping[str, Any], progress: Progress | None = None) -> Answer:
    """Answer ``plan`` with its arguments by name; ``progress`` is called with how far the search is."""
    if asks_to_serve(given):
        return planned_serving(given)
    refuse_options_of_requests(given)
    search = solving(given["solve"], given["solve_steps"], given["seed"])
    file, csv, markdown, report = (_path(given[name]) for name in ("output", "csv", "markdown", "report"))
    for path in [] if file is None else [file, *([file.with_suffix(".csv")] if search else [])]:
        check_writable(path, "output")
    for option, table in {"csv": csv, "markdown": markdown, "report": report}.items():
        if table is not None:
            check_writable(table, option)
    options = {name: given[name] for name in AS_THEY_ARE}
    options |= {name: usual for name, usual in USUAL.items() if given[name] is None}
    options |= {ours: given[name] for name, ours in WITH_UNITS.items()}
    options |= {name: several(given[name] or ()) for name in ("keep", "forbid", "allow", "assume")}
    options |= {name: read(given[name]) for name, read in READ_AS_TEXT.items()}
    try:
        found = api.plan(**options, solving=search, progress=progress)
    except InfeasibleError as error:
        if report is not None:
            write_all({report: reasons_page("No plan", error_data(error))})
        raise
    data, files = found.to_json(), found.proposals[0].files(file) if file else {}
    pages = {} if report is None else {report: _report(found, data, progress)}
    write_all(files | cluster_tables(found.table, csv, markdown) | pages)
    strongest = [reason.field for reason in strongest_reasons(found.proposals[0].reasons)]
    return Answer(
        data,
        lambda data: render_plan_answer(
            data,
            strongest,
            [str(path) for path in files],
            None if report is None else str(report),
            why=given["why"],
        ),
        remarks=found.proposals[0].report.remarks,
    )


def _report(found: Any, data: Mapping[str, Any], progress: Progress | None) -> str:
    from meshwright.explanation.report.report_document import report_document
    from meshwright.explanation.report.report_requests import answer_report

    return report_page(report_document(answer_report(found, data), progress or (lambda what, part: None)))


def several(values: str | Iterable[str]) -> tuple[str, ...]:
    """Return values of an option that can be given several times; a text is one value."""
    return (values,) if isinstance(values, str) else tuple(values)


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


USUAL = {"stack": "megatron-core", "objective": "throughput"}
"""Values of options whose defaults are others for plans that serve."""
WITH_UNITS = {"budget": "budget_usd", "deadline": "deadline_days", "power": "power_kw"}
"""Options of ``plan`` whose names in ``api`` say their unit."""
AS_THEY_ARE = (
    *("model", "on", "seq_len", "global_batch", "batch_range", "stack", "precision", "fp8_recipe", "task"),
    *(
        "top",
        "stages",
        "layers",
        "schedule",
        "encoder_tokens",
        "recommend",
        "objective",
        "tokens",
        "sure",
        "price",
        "constants",
    ),
)
"""Options of ``plan`` that need no reading."""
READ_AS_TEXT: Mapping[str, Callable[[Any], Any]] = {
    "optimizer": lambda value: read_optimizer(_as_text(value)),
    "adapter": lambda value: read_adapter(_as_text(value)),
    "capacity": lambda value: read_capacity(_as_text(value)),
    "routing": lambda value: read_routing(None if value is None else str(value)),
    "images": lambda value: read_images(_as_images(value)),
    "documents": lambda value: lengths(
        value if value is None or isinstance(value, str) else ",".join(map(str, value))
    ),
}
"""Options of ``plan`` that the command line has as text, and how each is read."""


def _as_images(value: Any) -> str | None:
    """Return images as the command line has them; what they can not be, as it is written."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        return str(value)
    return "x".join(str(value.get(key, "")) for key in ("per_sequence", "tokens"))


def _as_text(value: Any) -> Any:
    """Return a value as the command line has it: mappings and numbers as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(dict(value) if isinstance(value, Mapping) else value)
