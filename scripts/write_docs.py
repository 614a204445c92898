"""Write the generated parts of the documentation: what stands between ``begin NAME`` and ``end NAME`` marks.

``python scripts/write_docs.py`` rewrites docs/*.md, the README and the pictures; tests compare. With
``--options`` it also rewrites the frozen list of command-line options, tests/house/cli_options.txt: do that only when
an option changes on purpose.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from assertion_pages import assertion_counts, assertion_tables
from command_line import frozen_list, verbs
from concept_pages import SECTIONS as CONCEPTS
from constants_page import (
    calibrated_file,
    constants_given,
    global_constants,
    kernel_constants,
    owned_constants,
    recipe_constants,
    stack_constants,
)
from explain_pages import (
    explained_against,
    explained_changes,
    explained_choices,
    explained_each,
    explained_parts,
    explained_summary,
)
from findings import charts, four_dimensions, frontier, growth, hardware_scaling, tensor_inside
from folding_page import folding_predicted
from markdown_table import table
from schedule_pages import schedule_parts, schedule_table, vocabulary_forms, vocabulary_places
from schedule_pictures import pictures

from meshwright import api
from meshwright.cluster.catalog import device, device_ids, usual_node
from meshwright.cluster.catalog_prices import usual_price
from meshwright.frameworks.export_targets import SERVING_TARGETS, TARGETS
from meshwright.model.load import load_model
from meshwright.model.zoo_names import zoo_names
from meshwright.plans.context_parallel import USUAL
from meshwright.plans.context_parallel_forms import CONTEXT_FORMS
from meshwright.plans.rules.stack_limits.meshwright import LIMITS
from meshwright.present.plan_answers.plan_output import render_plan_answer
from meshwright.schedules.generators import SCHEDULES
from meshwright.search.choice_reasons import strongest_reasons
from meshwright.stack.load import load_stack, stack_names
from meshwright.units import GIB, GIGA, TERA, format_count

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PICTURES = DOCS / "schedules"
CHARTS = DOCS / "findings"
OPTIONS = ROOT / "tests" / "house" / "cli_options.txt"
MARKED = re.compile(r"(<!-- begin ([a-z-]+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def models() -> str:
    """The zoo: sizes and where they come from."""
    graphs = [load_model(name) for name in zoo_names()]
    rows = (
        (
            f"`{g.name}`",
            format_count(g.parameters),
            format_count(g.parameters_active),
            len(g.layer_blocks),
            g.architecture.hidden,
            g.source,
        )
        for g in graphs
    )
    return table(("model", "parameters", "active", "layers", "hidden", "source"), rows)


def devices() -> str:
    """The catalogue of devices."""
    return table(
        ("device", "bf16 TFLOP/s", "GiB", "GB/s", "scale-up GB/s", "usual node", "USD/h", "confidence"),
        map(_device_row, device_ids()),
    )


def _device_row(name: str) -> Iterator[object]:
    kind, node, price = device(name), usual_node(name), usual_price(name)
    peak = kind.peak_flops.get("bf16", kind.peak_flops.get("fp16"))
    yield f"`{name}`"
    yield f"{peak / TERA:g}" if peak else None
    yield f"{kind.memory_bytes / GIB:.2f}"
    yield f"{kind.memory_bytes_per_s / GIGA:g}"
    yield f"{kind.scaleup_bytes_per_s / GIGA:g}"
    yield f"{node.name} ({node.devices})"
    yield f"{price.value:.2f}" if price else None
    yield kind.confidence


def stacks() -> str:
    """Stacks at their newest release."""
    found = [load_stack(name) for name in stack_names()]
    rows = (
        (f"`{s.id}`", s.attention, ", ".join(s.schedules), ", ".join(s.shardings), s.source) for s in found
    )
    return table(("stack", "attention", "schedules", "sharding", "facts from"), rows)


def schedules() -> str:
    """Schedules, all of which plans can name."""
    rows = [(f"[`{name}`](schedules.md#{name})", kind.summary) for name, kind in SCHEDULES.items()]
    return table(("schedule", "what it does"), rows)


def context_forms() -> str:
    """Forms of context parallelism, the usual one first."""
    rows = []
    for name, kind in CONTEXT_FORMS.items():
        texts, usual = kind.texts, " (default)" if name == USUAL.form else ""
        rows.append((f"`{name}`{usual}", texts.forward, texts.backward, texts.memory, texts.source))
    heads = ("form", "exchanged over cp, forward", "backward", "extra memory of a rank", "source")
    return table(heads, rows)


def targets() -> str:
    """What ``export --to`` accepts."""
    rows = (
        (f"`{name}`", _first_line(sys.modules[exporter.__module__]))  # type: ignore[attr-defined]
        for name, exporter in (TARGETS | SERVING_TARGETS).items()
    )
    return table(("target", "what is written"), rows)


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0].replace("``", "`")


def runtime() -> str:
    """What the runtime runs of the plan language."""
    return table(("key", "runs", "refused"), ((f"`{r.what}`", r.runs, r.refused) for r in LIMITS))


def verb_table() -> str:
    """One line for every verb."""
    rows = ((f"`{verb.name}`", verb.help.partition("\n")[0]) for verb in verbs())
    return table(("verb", "does"), rows)


def verb_pages() -> str:
    """Every verb with its arguments and options."""
    parts = []
    for verb in verbs():
        rows = [
            (
                f"`{parameter.usage}`",
                parameter.help,
                "required" if parameter.required else parameter.default and f"`{parameter.default}`",
            )
            for parameter in verb.parameters
            if not parameter.hidden
        ]
        text = f"## {verb.name}\n\n{verb.help}\n\n" + table(("argument or option", "", "default"), rows)
        parts.append(text)
    return "\n".join(parts)


def example_plan() -> str:
    """Return what ``plan`` prints for the README's question."""
    answer = api.plan("llama-3.1-70b", on="h100-sxm-80gb x 64", seq_len=8192, global_batch=512)
    text = StringIO()
    with redirect_stdout(text):
        strongest = [reason.field for reason in strongest_reasons(answer.proposals[0].reasons)]
        render_plan_answer(answer.to_json(), strongest, ["plan.yaml"], why=False)
    return f"```text\n{text.getvalue().strip()}\n```\n"


def accuracy() -> str:
    """Errors by source from the pages under benchmarks/: in-sample and left out, with the share in the interval."""
    fitted = {cells[0]: cells[2] for cells in _page_rows("accuracy.md", "## Step time")}
    rows = [
        (cells[0], cells[1], fitted.get(cells[0]), cells[2], cells[3], cells[4])
        for cells in _page_rows("left-out.md", "# Each source left out")
    ]
    return table(
        ("source", "runs", "in-sample", "left out", "bias when left out", "in the 80 % interval"), rows
    )


def _page_rows(page: str, heading: str) -> Iterator[list[str]]:
    """Cells of the lines of the first table below a heading of a page under benchmarks/."""
    text = (ROOT / "benchmarks" / page).read_text(encoding="utf-8")
    lines = text[text.index(heading) :].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| ---"))
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


SECTIONS: dict[str, Callable[[], str]] = {
    **CONCEPTS,
    "models": models,
    "devices": devices,
    "stacks": stacks,
    "schedules": schedules,
    "context-forms": context_forms,
    "targets": targets,
    "runtime": runtime,
    "example-plan": example_plan,
    "explained-summary": explained_summary,
    "explained-parts": explained_parts,
    "explained-choices": explained_choices,
    "explained-changes": explained_changes,
    "explained-against": explained_against,
    "explained-each": explained_each,
    "verbs": verb_table,
    "verb-pages": verb_pages,
    "constants-given": constants_given,
    "calibrated-file": calibrated_file,
    "constants": global_constants,
    "owned-constants": owned_constants,
    "kernels": kernel_constants,
    "stack-constants": stack_constants,
    "recipe-constants": recipe_constants,
    "accuracy": accuracy,
    "assertion-counts": assertion_counts,
    "assertion-tables": assertion_tables,
    "schedule-table": schedule_table,
    "schedule-parts": schedule_parts,
    "vocabulary-forms": vocabulary_forms,
    "vocabulary-places": vocabulary_places,
    "findings-hardware": hardware_scaling,
    "findings-frontier": frontier,
    "findings-tensor": tensor_inside,
    "findings-lengths": four_dimensions,
    "findings-growth": growth,
    "folding-predicted": folding_predicted,
}


def rewritten(text: str) -> str:
    """A page with all its marked sections as they should be. Raises KeyError for an unknown mark."""
    return MARKED.sub(lambda match: f"{match[1]}{SECTIONS[match[2]]()}{match[3]}", text)


def pages() -> list[Path]:
    """The pages that may have generated parts."""
    return [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]


def write(path: Path, text: str) -> None:
    """Write a file if its text is new, and say so."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


def draw() -> None:
    """Write the pictures of schedules and of findings, and remove those that are drawn no more."""
    for folder, drawn in ((PICTURES, pictures()), (CHARTS, charts())):
        folder.mkdir(exist_ok=True)
        for name, text in drawn.items():
            write(folder / name, text)
        for path in folder.iterdir():
            if path.name not in drawn:
                path.unlink()


def main(arguments: list[str]) -> None:
    """Rewrite every page and picture, and with ``--options`` the list of options."""
    for path in pages():
        write(path, rewritten(path.read_text(encoding="utf-8")))
    draw()
    if "--options" in arguments:
        write(OPTIONS, frozen_list())


if __name__ == "__main__":
    main(sys.argv[1:])
