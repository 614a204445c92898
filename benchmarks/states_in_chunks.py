"""The largest models of DeepSpeed and of states in chunks on one node, for ``states.py``.

Each line of ``benchmarks/states/chunks.csv`` is a node and the width of a GPT. Layers are added until no plan fits:
DeepSpeed with ZeRO-2 or ZeRO-3 and its optimizer on the host, parameters there or not; and PatrickStar's chunks, on a
generic stack. Both recompute everything, and have one micro-batch of as many sequences.
"""

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from meshwright.errors import InputError
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved, resolve
from meshwright.result import Report
from meshwright.units import GIB
from meshwright.verbs.predict.predict_plan import predicted

FOLDER = Path(__file__).parent / "states"
MOST_LAYERS = 1024
DEVICES = 8
DEEPSPEED = (
    {"sharding": "zero2", "offload": {"optimizer": "all"}},
    {"sharding": "zero3", "gather": "per-layer", "offload": {"optimizer": "all"}},
    {"sharding": "zero3", "gather": "per-layer", "offload": {"optimizer": "all", "parameters": "all"}},
)
CHUNKS = ({"sharding": "zero3", "gather": "per-layer", "offload": {"manager": "chunks"}},)


@dataclass(frozen=True, slots=True)
class ChunkQuestion:
    """A line of the table: a node, and the shape of a GPT's layers; ``published`` is the ratio of model sizes."""

    question: str
    cluster: str
    hidden: str
    heads: str
    sequences: str
    published: str
    source: str
    assumed: str

    def resolved(self, folder: Path, layers: int, stack: str, choices: dict[str, object]) -> Resolved:
        """Return a plan with so many layers."""
        model = folder / f"{layers}.json"
        sizes = {"n_layer": layers, "n_embd": int(self.hidden), "n_head": int(self.heads)}
        rest = {"n_positions": 1024, "vocab_size": 50257, "tie_word_embeddings": True}
        names = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
        model.write_text(json.dumps({**names, **sizes, **rest}), encoding="utf-8")
        sequences = int(self.sequences)
        data: dict[str, object] = {
            "plan": 1,
            "model": str(model),
            "cluster": str(FOLDER / self.cluster),
            "workload": {"seq_len": 1024, "global_batch": DEVICES * sequences, "precision": "fp16"},
            "stack": stack,
            "layout": {"dp_shard": DEVICES},
            "recompute": "full",
            "pipeline": {"micro_batch": sequences},
        }
        return resolve(ShortPlan.model_validate({**data, **choices}))


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest model that fits: its parameters, and the report of its fastest plan."""

    parameters: float
    report: Report


def largest(asked: ChunkQuestion, stack: str, ways: tuple[dict[str, object], ...]) -> Largest:
    """Return the largest model that fits with any of some ways to keep states."""
    with TemporaryDirectory() as folder:

        def best(layers: int) -> Report | None:
            found = [_fitting(asked, Path(folder), layers, stack, way) for way in ways]
            return min((one for one in found if one), key=lambda one: one.step_time_s, default=None)

        layers = _last(lambda count: best(count) is not None)
        report = best(layers)
        assert report is not None
        hidden = int(asked.hidden)
        return Largest(12.0 * layers * hidden**2 + 51281.0 * hidden, report)


def _fitting(
    asked: ChunkQuestion, folder: Path, layers: int, stack: str, way: dict[str, object]
) -> Report | None:
    try:
        report = predicted(asked.resolved(folder, layers, stack, way))
    except InputError:
        return None
    return report if report.fits else None


def _last(fits: Callable[[int], bool]) -> int:
    """Return the largest number of layers that fits; 1 fits."""
    low, high = 1, MOST_LAYERS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def chunk_rows() -> Iterator[str]:
    """Yield the lines of the table."""
    yield (
        "| node | hidden size | sequences a device | DeepSpeed, B | GiB a device | GiB a host | chunks, B "
        "| GiB a device | GiB a host | ratio | published | source | assumed |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|---|"
    with (FOLDER / "chunks.csv").open(encoding="utf-8", newline="") as file:
        questions = [ChunkQuestion(**row) for row in csv.DictReader(file)]
    for asked in questions:
        static, chunks = largest(asked, "deepspeed", DEEPSPEED), largest(asked, "generic", CHUNKS)
        ratio = chunks.parameters / static.parameters
        yield (
            f"| {asked.question} | {asked.hidden} | {asked.sequences} | {_numbers(static)} | {_numbers(chunks)} "
            f"| {ratio:.2f} | {asked.published or '–'} | {asked.source} | {asked.assumed} |"
        )


def _numbers(found: Largest) -> str:
    memory = found.report.memory_bytes
    device, host = memory["total"] / GIB, memory.get("host", 0) / GIB
    return f"{found.parameters / 1e9:.1f} | {device:.1f} | {host:.0f}"
