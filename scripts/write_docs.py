"""Write the generated parts of the documentation: what stands between ``begin NAME`` and ``end NAME`` marks.

``python scripts/write_docs.py`` rewrites docs/*.md and the frozen list of command-line options; a test compares.
"""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from pathlib import Path

from meshwright.cluster.catalog import device, device_ids, usual_node
from meshwright.cluster.prices import usual_price
from meshwright.export import TARGETS
from meshwright.model.load import load_model, zoo_names
from meshwright.schedule import KNOWN_SCHEDULES, SCHEDULES
from meshwright.stack.load import load_stack, stack_names
from meshwright.units import GIB, GIGA, TERA, format_count

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MARKED = re.compile(r"(<!-- begin ([a-z-]+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)
UNITS = {"_us": "µs", "_gb_s": "GB/s", "_mb": "MB"}
CURVES = ("latency_us", "latency_per_rank_us", "bandwidth_gb_s", "saturation_mb", "saturation_power")


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; empty cells for None."""
    lines = [list(header)]
    lines.append(["---"] * len(lines[0]))
    lines += [["" if cell is None else str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


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
    """Schedules that run, and those that are refused by name."""
    rows = [(f"`{name}`", kind.summary) for name, kind in SCHEDULES.items()]
    refused = [f"`{name}`" for name in KNOWN_SCHEDULES if name not in SCHEDULES]
    return table(("schedule", "what it does"), rows) + f"\nRefused by name: {', '.join(refused)}.\n"


def targets() -> str:
    """What ``export --to`` accepts."""
    rows = (
        (f"`{name}`", _first_line(sys.modules[exporter.__module__]))  # type: ignore[attr-defined]
        for name, exporter in TARGETS.items()
    )
    return table(("target", "what is written"), rows)


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0].replace("``", "`")


def constants() -> str:
    """Global constants of the cost model."""
    rows = _csv_rows("constants.csv")
    return table(rows[0], [(f"`{row['name']}`", *list(row.values())[1:]) for row in rows])


def kernels() -> str:
    """Kernel constants by device family; curves of collectives in a table of their own."""
    rows = _csv_rows("kernels.csv")
    plain = [name for name in rows[0] if name[:3] not in ("ar_", "ag_") and name != "origin"]
    curves = [
        [f"`{row['device']}`", name, *(row[f"{prefix}_{key}"] for key in CURVES)]
        for row in rows
        for prefix, name in (("ar", "all-reduce"), ("ag", "all-gather"))
    ]
    return "\n".join(
        [
            table(
                [name.replace("_", " ") for name in plain], [[row[name] for name in plain] for row in rows]
            ),
            table(["device", "curve", *(key.replace("_", " ") for key in CURVES)], curves),
            table(["device", "origin"], [(f"`{row['device']}`", row["origin"]) for row in rows]),
        ]
    )


def _spoken(column: str) -> str:
    """A column's name for people, its unit in brackets."""
    for ending, unit in UNITS.items():
        if column.endswith(ending):
            return f"{column.removesuffix(ending).replace('_', ' ')} ({unit})"
    return column.replace("_", " ")


def _csv_rows(name: str) -> list[dict[str, str]]:
    text = files("meshwright.cost").joinpath("data", name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


SECTIONS: dict[str, Callable[[], str]] = {
    "models": models,
    "devices": devices,
    "stacks": stacks,
    "schedules": schedules,
    "targets": targets,
    "constants": constants,
    "kernels": kernels,
}


def rewritten(text: str) -> str:
    """A page with all its marked sections as they should be. Raises KeyError for an unknown mark."""
    return MARKED.sub(lambda match: f"{match[1]}{SECTIONS[match[2]]()}{match[3]}", text)


def main() -> None:
    """Rewrite every page."""
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new := rewritten(text)) != text:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
