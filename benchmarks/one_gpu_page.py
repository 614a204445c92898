"""The page of what one accelerator has shown, from the lines of its results."""

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import Any

from meshwright.units import GIB

Line = Mapping[str, Any]
SHOWN_STEPS = 6
BASE = "llama-3.2-1b, all forward first"


def page(lines: Sequence[Line]) -> str:
    """All tables; what was not measured is said to be missing."""
    parts: dict[str, list[Line]] = {}
    for line in lines:
        parts.setdefault(line["part"], []).append(line)
    trained = parts.get("training", [])
    sections = (
        ("", head(parts.get("machine", []))),
        ("## Kernels", kernels(parts.get("kernel", []))),
        ("## What the measured cluster file carries", findings(parts.get("fitted", []))),
        ("## Step time", times(trained)),
        ("## Memory", memory(trained)),
        ("## Activations on the host", offload(trained)),
        ("## Losses", losses(trained)),
        ("## Equality in fp64", proofs(parts.get("proof", []))),
        ("## What failed", failures(lines)),
    )
    texts = ("\n".join(part for part in (title, "", *rows) if part is not None) for title, rows in sections)
    return "# One accelerator\n" + "\n\n".join(texts) + "\n"


def head(lines: Sequence[Line]) -> Iterator[str]:
    """Where and when."""
    if not lines:
        yield "Nothing was measured: what follows are predictions alone."
        return
    facts = lines[-1]
    if facts["rehearsal"]:
        yield "**A rehearsal on a CPU with the numbers of another device beside it: it says nothing.**"
        yield ""
    yield (
        f"{facts['device']}, {facts['memory_bytes'] / GIB:.1f} GiB, predicted as {facts['catalogue']}; "
        f"PyTorch {facts['torch']}, version {facts['version']}, {facts['date']}. Ratios are predicted over measured."
    )


def kernels(lines: Sequence[Line]) -> Iterator[str]:
    """Each kernel beside the form that prices it in a training step."""
    if not lines:
        yield "Not measured."
        return
    yield "Predicted is what the catalogue's form takes of the kernel in a training step, slower than a bare one."
    yield ""
    yield "| kernel | shape | predicted µs | measured µs | spread µs | ratio | measured TFLOP/s | measured GB/s |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for line in lines:
        said, found = line["predicted_s"], line["measured_s"]
        kind = " ".join(filter(None, (line["kind"], line["kernel"], line["dtype"])))
        yield (
            f"| {kind} | {'×'.join(map(str, line['shape']))} | {_number(said, 1e6, 1)} | {found * 1e6:.1f} | "
            f"{line['spread_s'] * 1e6:.1f} | {_ratio(said, found)} | {line['flops'] / found / 1e12:.1f} | "
            f"{line['moved_bytes'] / found / 1e9:.0f} |"
        )


def findings(lines: Sequence[Line]) -> Iterator[str]:
    """What ``measure`` says of the file."""
    found = [sentence for line in lines for sentence in (*line["findings"], *line["unfinished"])]
    yield from (f"* {sentence}" for sentence in found) if found else ("Not measured.",)


def times(lines: Sequence[Line]) -> Iterator[str]:
    """Predicted before and after the measurement of the device, and measured."""
    yield "By the catalogue and, under `file`, by the measured cluster file; a step's median is laid beside both."
    yield ""
    yield "| training | predicted ms | 80 % interval | file ms | measured ms | 10 % to 90 % | ratio | inside | file |"
    yield "|---|--:|--:|--:|--:|--:|--:|---|--:|"
    for line in lines:
        first, later, found = _said(line, "catalogue"), _said(line, "measured"), line.get("step_s")
        if not first:
            continue
        inside = "" if found is None else ("yes" if first["low_s"] <= found <= first["high_s"] else "no")
        spread = "" if found is None else f"{line['step_low_s'] * 1e3:.1f} to {line['step_high_s'] * 1e3:.1f}"
        yield (
            f"| {line['name']} | {first['step_s'] * 1e3:.1f} | {first['low_s'] * 1e3:.0f} to "
            f"{first['high_s'] * 1e3:.0f} | {_number(later.get('step_s'), 1e3, 1)} | {_number(found, 1e3, 1)} | "
            f"{spread} | {_ratio(first['step_s'], found)} | {inside} | {_ratio(later.get('step_s'), found)} |"
        )


def memory(lines: Sequence[Line]) -> Iterator[str]:
    """The ledger beside the allocator; the ledger's workspace is no tensor of ours."""
    yield "In GiB. Tensors are laid beside the prediction without workspace; states are measured once they are loaded."
    yield ""
    yield "| training | predicted | no workspace | tensors | reserved | ratio | states predicted | states measured |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for line in lines:
        first = _said(line, "catalogue")
        if not first:
            continue
        ledger = first["memory_bytes"]
        tensors = ledger["total"] - ledger["workspace"]
        states = sum(ledger[key] for key in ("parameters", "gradients", "optimizer"))
        peak = line.get("peak_bytes")
        cells = (ledger["total"], tensors, peak, line.get("reserved_bytes"))
        yield (
            f"| {line['name']} | {' | '.join(_number(cell, 1 / GIB, 2) for cell in cells)} | "
            f"{_ratio(tensors, peak)} | {_number(states, 1 / GIB, 2)} | "
            f"{_number(line.get('states_bytes'), 1 / GIB, 2)} |"
        )


def offload(lines: Sequence[Line]) -> Iterator[str]:
    """What copies to the host add to a step, and take from the device."""
    base = next((line for line in lines if line["name"] == BASE), {})
    yield "| training | added, predicted ms | added, measured ms | freed, predicted GiB | freed, measured GiB |"
    yield "|---|--:|--:|--:|--:|"
    for line in lines:
        said, without = _said(line, "catalogue"), _said(base, "catalogue")
        if "on the host" not in line["name"] or not said or not without:
            continue
        added = _less(line.get("step_s"), base.get("step_s"))
        freed = _less(base.get("peak_bytes"), line.get("peak_bytes"))
        totals = without["memory_bytes"]["total"] - said["memory_bytes"]["total"]
        yield (
            f"| {line['name']} | {(said['step_s'] - without['step_s']) * 1e3:.1f} | {_number(added, 1e3, 1)} | "
            f"{totals / GIB:.2f} | {_number(freed, 1 / GIB, 2)} |"
        )


def losses(lines: Sequence[Line]) -> Iterator[str]:
    """Some steps of each training, the first and the last among them."""
    yield f"Text in bytes; a uniform guess over 256 bytes is {log(256):.2f}."
    yield ""
    for line in lines:
        found = line.get("losses")
        if found:
            last = len(found) - 1
            steps = sorted({round(last * at / (SHOWN_STEPS - 1)) for at in range(SHOWN_STEPS)})
            yield f"* {line['name']}: " + ", ".join(f"step {step} {found[step]:.4f}" for step in steps)


def proofs(lines: Sequence[Line]) -> Iterator[str]:
    """The worst error of each model's small plans."""
    yield "| model | plans | equal | worst relative error |"
    yield "|---|--:|---|--:|"
    for line in lines:
        if "plans" in line:
            errors = [plan["max_relative_error"] for plan in line["plans"]]
            worst = "–" if None in errors else f"{max(errors):.1e}"
            yield f"| {line['name']} | {len(errors)} | {'yes' if line['equal'] else 'no'} | {worst} |"


def failures(lines: Sequence[Line]) -> Iterator[str]:
    """Cases that ended with an error."""
    found = [line for line in lines if "error" in line]
    yield from (f"* {line['part']} {line['name']}: {line['error'][:300]}" for line in found)
    if not found:
        yield "Nothing."


def _said(line: Line, by: str) -> Mapping[str, Any]:
    return line.get("predicted", {}).get(by, {})


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _number(value: float | None, scale: float, digits: int) -> str:
    return "" if value is None else f"{value * scale:.{digits}f}"


def _ratio(said: float | None, found: float | None) -> str:
    return "" if said is None or not found else f"{said / found:.2f}"
