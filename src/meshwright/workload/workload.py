"""The workload noun: task, sequence length, batch, precision and optimizer of a step.

A step processes ``global_batch`` sequences of ``seq_len`` tokens, each of them one text, packed with documents
that do not attend to each other, or images and text. Tasks other than pre-training and full
fine-tuning are part of the language and are refused by name where a verb cannot do them yet.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from meshwright.errors import InputError, Problem
from meshwright.workload.adapter import Adapter
from meshwright.workload.encoder_lengths import EncoderLengths
from meshwright.workload.expert_capacity import MAX_FACTOR, Capacity
from meshwright.workload.expert_routing import MAX_SKEW, Pairs, Routing
from meshwright.workload.fp8_recipe import FP8_RECIPES, Fp8Recipe
from meshwright.workload.images import Images
from meshwright.workload.optimizer_choice import ADAMW, Optimizer
from meshwright.workload.packed_documents import Documents

Task = Literal["pretrain", "sft", "lora", "post-train", "serve"]
Precision = Literal["fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]

TASKS: tuple[Task, ...] = ("pretrain", "sft", "lora", "post-train", "serve")
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")
SUPPORTED_TASKS: tuple[Task, ...] = ("pretrain", "sft", "lora")
SUPPORTED_PRECISIONS: tuple[Precision, ...] = ("fp16", "bf16", "fp8", "mxfp8", "nvfp4")

MAX_SEQ_LEN = 2**27
MAX_GLOBAL_BATCH = 2**27
MAX_DOCUMENTS = 2**12
MAX_IMAGES = 2**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step's work. ``seq_len`` in tokens, ``global_batch`` in sequences.

    ``documents`` are what sequences are packed with; None: each sequence is one. ``routing`` is how unevenly tokens
    choose experts; None: as in the runs that constants were fitted to. ``capacity`` is how many tokens an expert takes;
    None: all that chose it. ``fp8_recipe`` is how the scales of 8-bit numbers are found (``workload/fp8_recipe.py``);
    None: as the stack does. ``adapter`` is what task ``lora`` trains; None: one pair of matrices of rank 32 for each
    linear operator of a layer, whatever it fuses. ``encoder_tokens`` is the length of the text that an encoder reads
    for each sequence, ``images`` are those that each sequence begins with: ``seq_len`` counts their merged rows.
    """

    task: Task = "pretrain"
    seq_len: int
    global_batch: int
    precision: Precision = "bf16"
    optimizer: Optimizer = ADAMW
    documents: Documents | None = None
    encoder_tokens: int | None = None
    images: Images | None = None
    routing: Routing | None = None
    capacity: Capacity | None = None
    fp8_recipe: Fp8Recipe | None = None
    adapter: Adapter | None = None

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise InputError(problems)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one step, all ranks together."""
        return self.seq_len * self.global_batch

    @property
    def encoder_lengths(self) -> EncoderLengths:
        """The tokens of an encoder."""
        if self.images is not None:
            return EncoderLengths(self.images.patches, self.images)
        return EncoderLengths(self.encoder_tokens or 0)

    @property
    def computed_sequences(self) -> int:
        """Forward passes over sequences in a step, all replicas together."""
        return self.global_batch * self.optimizer.passes_of_a_sequence

    @property
    def peak_precision(self) -> str:
        """The column of a device's peaks that counts as 100 % for this workload."""
        return {"mxfp8": "fp8", "nvfp4": "fp4"}.get(self.precision, self.precision)

    def _problems(self) -> list[Problem]:
        problems = []
        counts: list[tuple[str, int, int]] = [
            ("workload.seq_len", self.seq_len, MAX_SEQ_LEN),
            ("workload.global_batch", self.global_batch, MAX_GLOBAL_BATCH),
        ]
        if self.encoder_tokens is not None:
            counts.append(("workload.encoder_tokens", self.encoder_tokens, MAX_SEQ_LEN))
        if self.images is not None:
            counts += [
                ("workload.images.per_sequence", self.images.per_sequence, MAX_IMAGES),
                ("workload.images.tokens", self.images.tokens, MAX_SEQ_LEN),
            ]
        for name, value, top in counts:
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= top:
                problems.append(
                    Problem(
                        name, value, f"must be a whole number from 1 to {top}", f"e.g. {min(top // 16, 4096)}"
                    )
                )
        for name, choice, known in (
            ("workload.task", self.task, TASKS),
            ("workload.precision", self.precision, PRECISIONS),
        ):
            if choice not in known:
                problems.append(Problem(name, choice, "unknown", "one of " + ", ".join(known)))
        problems += self.optimizer.problems()
        if self.adapter is not None:
            problems += self.adapter.problems(self.task, "fp16" if self.precision == "fp16" else "bf16")
        if self.fp8_recipe is not None:
            problems += self._wrong_recipe(self.fp8_recipe)
        return problems + self._wrong_documents() + self._wrong_routing() + self._wrong_capacity()

    def _wrong_recipe(self, recipe: str) -> list[Problem]:
        field = "workload.fp8_recipe"
        if recipe not in FP8_RECIPES:
            return [Problem(field, recipe, "unknown", "one of " + ", ".join(FP8_RECIPES))]
        if self.precision != "fp8":
            rule = f"is a recipe of precision fp8, and the precision is {self.precision}"
            return [Problem(field, recipe, rule, "precision: fp8, or leave it out")]
        return []

    def _wrong_routing(self) -> list[Problem]:
        counts = self.routing.value if self.routing else "balanced"
        if isinstance(counts, str | Pairs):
            return []
        if not isinstance(counts, tuple):
            rule = f"Zipf's exponent must be from 0 (balanced) to {MAX_SKEW:g}"
            bad = not 0 <= counts <= MAX_SKEW
            return [Problem("workload.routing", counts, rule, "e.g. 0.5")] if bad else []
        wide, wrong = {len(row) for row in counts}, [row for row in counts if min(row) < 0 or not sum(row)]
        rules = {"rows must be equally long": len(wide) > 1, "must be counts, some above 0": bool(wrong)}
        hint = "a row for each routed layer, a number for each expert"
        return [
            Problem("workload.routing", str(self.routing), rule, hint) for rule, bad in rules.items() if bad
        ]

    def _wrong_capacity(self) -> list[Problem]:
        factor = self.capacity.factor if self.capacity else 1.0
        if isfinite(factor) and 0 < factor <= MAX_FACTOR:
            return []
        rule = f"must be above 0 and at most {MAX_FACTOR:g}"
        return [Problem("workload.capacity.factor", factor, rule, "e.g. 1.25")]

    def _wrong_documents(self) -> list[Problem]:
        field, lengths = "workload.documents", self.documents.lengths if self.documents else (1,)
        if not 1 <= len(lengths) <= MAX_DOCUMENTS:
            rule = f"must be from 1 to {MAX_DOCUMENTS} lengths"
            return [Problem(field, len(lengths), rule, "a sample of the data, e.g. [900, 4000]")]
        wrong = next((length for length in lengths if not 1 <= length <= MAX_SEQ_LEN), None)
        if wrong is None:
            return []
        return [Problem(field, wrong, f"a length must be from 1 to {MAX_SEQ_LEN} tokens", "e.g. 1000")]
