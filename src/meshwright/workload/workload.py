"""The workload noun: what is to be done, independent of where and how.

A step processes ``global_batch`` sequences of ``seq_len`` tokens. Tasks other than pre-training and full
fine-tuning are part of the language and are refused by name where a verb cannot do them yet.
"""

from dataclasses import dataclass
from typing import Literal

from meshwright.errors import InputError, Problem

Task = Literal["pretrain", "sft", "lora", "post-train", "serve"]
Precision = Literal["fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
Optimizer = Literal["adamw", "sgd"]

TASKS: tuple[Task, ...] = ("pretrain", "sft", "lora", "post-train", "serve")
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")
SUPPORTED_TASKS: tuple[Task, ...] = ("pretrain", "sft", "lora")
SUPPORTED_PRECISIONS: tuple[Precision, ...] = ("fp16", "bf16", "fp8", "mxfp8", "nvfp4")

MAX_SEQ_LEN = 2**27
MAX_GLOBAL_BATCH = 2**27


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step's work. ``seq_len`` in tokens, ``global_batch`` in sequences."""

    task: Task = "pretrain"
    seq_len: int
    global_batch: int
    precision: Precision = "bf16"
    optimizer: Optimizer = "adamw"

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise InputError(problems)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one step, all ranks together."""
        return self.seq_len * self.global_batch

    @property
    def peak_precision(self) -> str:
        """The column of a device's peaks that counts as 100 % for this workload."""
        return {"mxfp8": "fp8", "nvfp4": "fp4"}.get(self.precision, self.precision)

    def _problems(self) -> list[Problem]:
        problems = []
        for name, value, top in (
            ("workload.seq_len", self.seq_len, MAX_SEQ_LEN),
            ("workload.global_batch", self.global_batch, MAX_GLOBAL_BATCH),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= top:
                problems.append(Problem(name, value, f"must be a whole number from 1 to {top}", "e.g. 4096"))
        for name, choice, known in (
            ("workload.task", self.task, TASKS),
            ("workload.precision", self.precision, PRECISIONS),
            ("workload.optimizer", self.optimizer, ("adamw", "sgd")),
        ):
            if choice not in known:
                problems.append(Problem(name, choice, "unknown", "one of " + ", ".join(known)))
        return problems
