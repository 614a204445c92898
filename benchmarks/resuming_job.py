"""A small training job that can be killed: it goes on from its latest checkpoint and saves every two steps.

    python benchmarks/resuming_job.py JOB FOLDER STEPS [--never-save] [--background]

Its ranks are forked, as those of ``meshwright run``. ``FOLDER/metrics.jsonl`` gets a line for each step with its loss
and its norm of gradients, ``FOLDER/checkpoints`` the checkpoints. With ``--never-save`` only the last step is saved,
with ``--background`` checkpoints are saved while the next steps run.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "runtime"))

from local_plans import Small, batch, micro_batches, small  # noqa: E402
from tiny_models import tiny  # noqa: E402

from meshwright.runtime.checkpoint import latest_checkpoint, restore_checkpoint  # noqa: E402
from meshwright.runtime.executor.rank import Job, Rank, rank_of  # noqa: E402
from meshwright.runtime.launch.forked_ranks import run_locally  # noqa: E402
from meshwright.runtime.state.step_options import StepOptions  # noqa: E402
from meshwright.runtime.training.options import TrainingOptions  # noqa: E402
from meshwright.runtime.training.save_checkpoint import CheckpointSaver  # noqa: E402
from meshwright.runtime.weights.random_tensors import random_tensors  # noqa: E402

METRICS, CHECKPOINTS = "metrics.jsonl", "checkpoints"
SAVE_EVERY, KEEP, LIMIT_S = 2, 2, 600
JOBS: Mapping[str, tuple[str, Callable[[], Small]]] = {
    "zero3, 2 ranks": (
        "bf16",
        lambda: small(tiny("llama"), sharding="zero3", gather="per-layer", dp_shard=2),
    ),
    "two stages of shards with a tied table, 4 ranks": (
        "fp32",
        lambda: small(tiny("gemma2"), {"schedule": "zb-h1"}, sharding="zero1", pp=2, dp_shard=2),
    ),
    "two stages and a spread vocabulary, tied, of shards, 4 ranks": (
        "bf16",
        lambda: small(
            tiny("qwen3"),
            {"schedule": {"name": "1f1b", "vocabulary": "vocab-2"}},
            sharding="zero1",
            pp=2,
            dp_shard=2,
        ),
    ),
}
"""Precision and plan of each job."""


def main(name: str, folder: Path, steps: int, save_every: int, background: bool = False) -> None:
    """Run a job to its end, from wherever it is."""
    precision, plan = JOBS[name]
    case = plan()
    tensors = random_tensors(case.model, 0)
    job = Job(case.program, case.model, precision, StepOptions(lr=1e-2), 60.0, accelerated=False)

    def work(place, store, tell):  # type: ignore[no-untyped-def]
        with rank_of(job, place, store, tensors) as rank:
            latest = latest_checkpoint(folder / CHECKPOINTS)
            if latest:
                restore_checkpoint(latest, rank)
            options = TrainingOptions(steps=steps, keep_last=KEEP, checkpoint_async=background)
            saver = CheckpointSaver(rank, folder / CHECKPOINTS, options, store)
            rank.interpreter.states.before_step = saver.before_optimizer
            for step in range(rank.interpreter.states.optimizer.step + 1, steps + 1):
                _step(case, rank, step, folder / METRICS)
                if step == steps or (save_every and step % save_every == 0):
                    saver.save({"steps": steps})
            saver.finish()

    run_locally(work, case.program.parts.ranks, LIMIT_S, lambda what, part: None)


def _step(case: Small, rank: Rank, step: int, metrics: Path) -> None:
    """A step on the batch of its number."""
    tokens, labels = batch(case.model, case.global_batch, step)
    result = rank.interpreter.step(micro_batches(case.program, rank.place.rank, tokens, labels))
    if rank.place.rank == 0:
        with metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "loss": result.loss, "grad_norm": result.norm}) + "\n")


if __name__ == "__main__":
    every = 0 if "--never-save" in sys.argv else SAVE_EVERY
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), every, "--background" in sys.argv)
