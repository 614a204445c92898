"""Figures of the page on folded experts: one model on the devices that the same degrees take, folded and apart."""

from collections.abc import Iterator
from pathlib import Path

from markdown_table import table

from meshwright import api
from meshwright.units import GIB, format_seconds

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "folding"
DEVICES = {"plan.yaml": 8, "apart.yaml": 64}
ASKED = ("model=qwen3-30b-a3b", "seq_len=32768", "micro_batch=1", "recompute=full")
SHOWN = ("parameters", "gradients", "optimizer", "activations")


def settings(file: str) -> list[str]:
    """What the page sets of a plan file."""
    return [*ASKED, f"cluster=h200-sxm-141gb x {DEVICES[file]}"]


def folding_predicted() -> str:
    """A line for either plan."""
    head = ("plan", "devices", "step", "tokens/s a device", *(f"{part}, GiB" for part in SHOWN))
    return table(head, map(_row, DEVICES))


def _row(file: str) -> Iterator[object]:
    report = api.predict(EXAMPLE / file, settings=settings(file))
    yield from (f"`{file}`", DEVICES[file], format_seconds(report.step_time_s))
    yield f"{report.tokens_per_s_per_device:,.0f}"
    yield from (f"{report.memory_bytes[part] / GIB:.1f}" for part in SHOWN)
