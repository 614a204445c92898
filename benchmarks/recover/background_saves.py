"""Measure how long a run waits for checkpoints that a slow disk takes several steps to write."""

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any

from checkpoint_runs import on_ranks
from kept_parts import kept
from local_plans import small
from tiny_models import tiny

from meshwright.runtime.checkpoint.shard_output import ShardWriter
from meshwright.runtime.training.options import TrainingOptions
from meshwright.runtime.training.save_checkpoint import CheckpointSaver

STEPS_OF_A_SAVE, SAVES, APART = 5, 4, 6
"""Steps that the slowed disk takes for a checkpoint; checkpoints, and steps from one to the next."""
MOST_BLOCKED = 0.05
"""Part of a step that a run may wait for a checkpoint in the background."""
CASE = small(
    tiny("llama", hidden_size=256, intermediate_size=512, head_dim=64),
    sharding="zero1",
    dp_shard=2,
    global_batch=32,
)


def saves_in_background() -> tuple[str, bool]:
    """Return the section, and whether a run waits for at most a twentieth of a step."""
    saves = kept("background saves", background_saves)
    text = f"""Two ranks on a CPU (fp32, zero1) save to a disk that is slowed until a checkpoint lasts
{STEPS_OF_A_SAVE} steps; medians of four checkpoints. Without a slowed disk copying is all that could make the run wait
(`benchmarks/recover/background_saves.py`).

{saves_table(saves)}"""
    behind = saves["in the background"]
    return text, behind["blocked_s"] <= MOST_BLOCKED * behind["step_s"]


def saves_table(saves: dict[str, dict[str, float]]) -> str:
    """Both ways of saving: how long it lasts, and how long the run waits."""
    lines = ["| saved | step | a checkpoint lasts | the run waits | of a step |", "|---|--:|--:|--:|--:|"]
    for way, of in saves.items():
        seconds = " | ".join(f"{of[name] * 1e3:.1f} ms" for name in ("step_s", "lasted_s", "blocked_s"))
        lines.append(f"| {way} | {seconds} | {of['blocked_s'] / of['step_s']:.1%} |")
    return "\n".join(lines)


def background_saves() -> dict[str, Any]:
    """Return medians in seconds of a step, of the copies and the saving of a checkpoint, and of waiting, both ways."""
    with TemporaryDirectory() as folder:
        return {
            way: on_ranks(CASE, lambda *of, way=way: _run(*of, Path(folder) / way), "fp32", with_store=True)[
                0
            ]
            for way in ("at once", "in the background")
        }


def _run(rank: Any, steps: Any, store: Any, folder: Path) -> dict[str, float]:
    """Take steps and save on a disk that is slowed in this process."""
    options = TrainingOptions(steps=1, checkpoint_async="background" in folder.name)
    saver = CheckpointSaver(rank, folder, options, store)
    alone_s = []
    for number in range(1, 7):
        began = perf_counter()
        steps([number])
        alone_s.append(perf_counter() - began)
    step_s, writes = median(alone_s[1:]), ShardWriter.write
    unit = sum(len(unit.owned) for unit in rank.plan.trained_units) * 12

    def slow(self: ShardWriter, content: memoryview) -> None:
        sleep(STEPS_OF_A_SAVE * step_s * len(content) / unit)
        writes(self, content)

    ShardWriter.write = slow  # type: ignore[method-assign]
    rank.interpreter.states.before_step = saver.before_optimizer
    for number in range(SAVES):
        saver.save({})
        steps(range(7 + number * APART, 7 + (number + 1) * APART))
    saver.finish()
    ShardWriter.write = writes  # type: ignore[method-assign]
    return {"step_s": step_s, "lasted_s": median(saver.lasted_s), "blocked_s": median(saver.blocked_s)}
