"""Options of a training run that its plan does not contain.

Defaults are those of LLaMA's training (arXiv 2302.13971, section 2.2: clipping at 1.0, cosine down to a tenth).
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from meshwright.errors import InputError, Problem, attempted, nearest
from meshwright.plans.synchronisation.periods import LearningRates
from meshwright.runtime.faults.injection import injections
from meshwright.runtime.launch.network_address import network_address
from meshwright.runtime.progress.metrics_outputs import missing_package
from meshwright.runtime.training.learning_rate import LR_SCHEDULES, Course, rate_factor

MAX_STEPS = 10**12
POLICIES = ("stop", "restart", "replan", "shrink")
"""Answers to a fault that ends ranks."""
MAX_SEED = 2**32
"""Seeds below this give different random streams: a larger one takes two of numpy's 32-bit words."""
MAX_NUMBER = 1e30

RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "lr": (lambda x: x > 0, "above 0"),
    "lr_floor": (lambda x: 0 <= x <= 1, "from 0 to 1"),
    "beta1": (lambda x: 0 <= x < 1, "from 0 to below 1"),
    "beta2": (lambda x: 0 <= x < 1, "from 0 to below 1"),
    "eps": (lambda x: x > 0, "above 0"),
    "weight_decay": (lambda x: x >= 0, "from 0 on"),
    "clip": (lambda x: x >= 0, "from 0 on; 0 is no limit"),
    "held_out": (lambda x: 0 <= x < 1, "from 0 to below 1"),
    "checkpoint_buffer_gib": (lambda x: x > 0, "above 0"),
    "hang_s": (lambda x: x > 0, "above 0"),
}
"""Legal ranges of a run's numbers; none is infinite."""
EXAMPLES = {
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-8,
    "weight_decay": 0.1,
    "checkpoint_buffer_gib": 4.0,
    "hang_s": 60.0,
}
"""Usual values of numbers that may be None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """Options of a run of ``steps`` optimizer steps. Raises InputError with all problems.

    ``lr`` is the highest rate, ``lr_floor`` a fraction of it, ``decay_steps`` (of ``wsd``) a tenth of the steps
    if None; ``beta1``, ``beta2``, ``eps`` and ``weight_decay`` are those of the plan's optimizer if None;
    ``clip`` is the largest gradient norm, None or 0 for no limit. An interval ``…_every`` of 0 means never; the
    last step always ends with a checkpoint. ``keep_last`` checkpoints are kept, and those of every
    ``keep_every``-th step. ``checkpoint_async`` saves in the background, with at most ``checkpoint_buffer_gib``
    of copies on the host of a rank (None: its shard) and, if given, on the disk ``checkpoint_local`` first.
    ``data`` are files and folders, none for synthetic tokens; ``tokenizer`` is a ``tokenizer.json``, a folder
    with one, or ``bytes``; None is the model's own, else one is trained on the data. ``end_of_document`` is a
    token's name, or its id if the data are tokens already. ``mask_document_starts`` leaves the first token of a
    document out of the loss. ``cache`` is the folder of tokenised data.

    ``inject`` are faults to try detection and recovery with (``faults/injection.py``); copies of states are compared
    every ``hash_every`` steps, 0 for never; a rank without progress for ``hang_s`` hangs (None: the run's time-out).
    ``on_fault`` is the policy of recovery, which ends after ``max_restarts`` of the same fault at the same step.
    Further processes join at ``listen``, HOST:PORT. ``tensorboard`` also writes metrics for TensorBoard into the
    output folder; ``prometheus`` serves them at HOST:PORT.
    """

    steps: int
    seed: int = 0
    lr: float = 3e-4
    schedule: str = "cosine"
    warmup_steps: int = 0
    lr_floor: float = 0.1
    decay_steps: int | None = None
    beta1: float | None = None
    beta2: float | None = None
    eps: float | None = None
    weight_decay: float | None = None
    clip: float | None = 1.0
    evaluate_every: int = 0
    held_out: float = 0.01
    checkpoint_every: int = 0
    keep_last: int = 2
    keep_every: int = 0
    checkpoint_async: bool = False
    checkpoint_buffer_gib: float | None = None
    checkpoint_local: Path | None = None
    output: Path = Path("run")
    data: tuple[str, ...] = ()
    tokenizer: str | None = None
    end_of_document: str | None = None
    mask_document_starts: bool = False
    cache: Path | None = None
    inject: tuple[str, ...] = ()
    hash_every: int = 100
    hang_s: float | None = None
    on_fault: str = "stop"
    max_restarts: int = 3
    listen: str | None = None
    tensorboard: bool = False
    prometheus: str | None = None

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise InputError(problems)

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        return self.lr * rate_factor(self.schedule, step, self._course())

    @property
    def rates(self) -> LearningRates:
        """The learning rates by the steps' numbers from 1, as rules of ``synchronise`` count them."""
        return LearningRates(lambda step: self.learning_rate(step - 1), self.steps, self.warmup_steps)

    def to_json(self) -> dict[str, object]:
        """Return the options as JSON-ready data; paths as text."""
        lists = {"data": list(self.data), "inject": list(self.inject)}
        data = {**asdict(self), **lists, "output": str(self.output)}
        paths = {"cache": self.cache, "checkpoint_local": self.checkpoint_local}
        return data | {name: None if path is None else str(path) for name, path in paths.items()}

    def _course(self) -> Course:
        decay = max(1, self.steps // 10) if self.decay_steps is None else self.decay_steps
        return Course(
            steps=self.steps, warmup_steps=self.warmup_steps, floor=self.lr_floor, decay_steps=decay
        )

    def _problems(self) -> Iterator[Problem]:
        yield from self._wrong_counts()
        yield from self._wrong_numbers()
        if self.schedule not in list(LR_SCHEDULES):
            yield Problem("schedule", self.schedule, "unknown schedule", nearest(self.schedule, LR_SCHEDULES))
        for name in ("checkpoint_buffer_gib", "checkpoint_local"):
            value = getattr(self, name)
            if value is not None and not self.checkpoint_async:
                rule = "is for checkpoints that are saved in the background"
                yield Problem(name, str(value), rule, "add --checkpoint-async")
        if self.on_fault not in POLICIES:
            yield Problem("on_fault", self.on_fault, "unknown policy", nearest(self.on_fault, POLICIES))
        yield from self._wrong_texts()
        for name, text in (("tokenizer", self.tokenizer), ("end_of_document", self.end_of_document)):
            if text == "":
                yield Problem(name, text, "names nothing", "leave it out")

    def _wrong_texts(self) -> Iterator[Problem]:
        wrong: list[Problem] = []
        attempted(lambda: injections(self.inject), wrong)
        for name in ("listen", "prometheus"):
            text = getattr(self, name)
            if text is not None:
                attempted(partial(network_address, text, name), wrong)
        yield from wrong
        outputs = {"tensorboard": self.tensorboard, "prometheus": self.prometheus is not None}
        missing = (missing_package(name) for name, wanted in outputs.items() if wanted)
        yield from filter(None, missing)

    def _wrong_counts(self) -> Iterator[Problem]:
        top = self.steps if _whole(self.steps) and self.steps > 0 else MAX_STEPS
        warm = self.warmup_steps if _whole(self.warmup_steps) and 0 <= self.warmup_steps < top else 0
        for name, value, low, high, why in (
            ("steps", self.steps, 1, MAX_STEPS, ""),
            ("seed", self.seed, 0, MAX_SEED - 1, ""),
            ("warmup_steps", self.warmup_steps, 0, top, ", the steps of the run"),
            (
                "decay_steps",
                1 if self.decay_steps is None else self.decay_steps,
                1,
                top - warm,
                ", the steps behind the warm-up",
            ),
            ("evaluate_every", self.evaluate_every, 0, MAX_STEPS, ""),
            ("checkpoint_every", self.checkpoint_every, 0, MAX_STEPS, ""),
            ("keep_last", self.keep_last, 1, MAX_STEPS, ""),
            ("keep_every", self.keep_every, 0, MAX_STEPS, ""),
            ("hash_every", self.hash_every, 0, MAX_STEPS, ""),
            ("max_restarts", self.max_restarts, 0, MAX_STEPS, ""),
        ):
            if not _whole(value) or not low <= value <= high:
                yield Problem(name, value, f"must be a whole number from {low} to {high}{why}", f"e.g. {low}")

    def _wrong_numbers(self) -> Iterator[Problem]:
        for name, (legal, rule) in RANGES.items():
            value = getattr(self, name)
            default = EXAMPLES.get(name, type(self).__dataclass_fields__[name].default)
            if (value is not None or name not in (*EXAMPLES, "clip")) and not (_real(value) and legal(value)):
                yield Problem(name, value, f"must be a number {rule}", f"e.g. {default}")


def _whole(value: object) -> bool:
    return type(value) is int


def _real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NUMBER
