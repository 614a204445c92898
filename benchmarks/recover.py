"""Continue runs from checkpoints under other plans, and measure what that takes.

    python benchmarks/recover.py            prints the page (`make recover`)
    python benchmarks/recover.py --write    also writes benchmarks/recover.md

Every part that is done is kept in ``.cache/recover``, so that a second call resumes; ``--again`` forgets them. Exits
with 1 where a pair differs by more than 1e-9, a rank needs more than 1.2 times its shard, or a damaged file is taken.
"""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from meshwright import __version__

HERE = Path(__file__).parent
KEPT = HERE.parent / ".cache" / "recover"
for folder in ("../benchmarks/recover", ".", "runtime", "runtime/checkpoint", "runtime/plan_sets"):
    sys.path.append(str(HERE.parent / "tests" / folder))

from background_saves import STEPS_OF_A_SAVE, background_saves  # noqa: E402
from checkpoint_pairs import largest_error, whole_run  # noqa: E402
from mutated_files import mutated_files  # noqa: E402
from reshard_plans import FAMILIES  # noqa: E402

LIMIT, MEMORY_LIMIT = 1e-9, 1.2
MUTATED, AT_ONCE, SEED = 100_000, 2_500, 20261129
"""Mutated files, how many are one part, and the seed of the first part."""


def kept(name: str, make: Callable[[], Any]) -> Any:
    """Return the result of a part, made now or by an earlier call."""
    path = KEPT / f"{name}.json"
    if not path.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(make()), encoding="utf-8")
        print(f"done: {name}", file=sys.stderr, flush=True)
    return json.loads(path.read_text(encoding="utf-8"))


def errors_from(family: str, source: str) -> dict[str, float]:
    """Save a run of a plan and go on under every other one: the largest relative error of each."""
    plans = FAMILIES[family]
    with TemporaryDirectory() as folder:
        run = whole_run(plans[source], Path(folder) / "whole")
        return {
            target: largest_error(run, plans[target], Path(folder) / str(number))
            for number, target in enumerate(plans)
            if target != source
        }


def large_restore() -> dict[str, Any]:
    """Read a rank's part of a large model in a process of its own."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / "recover" / "large_restore.py"), folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def pairs_table(errors: dict[tuple[str, str], dict[str, float]]) -> str:
    """Each saved plan, and the plan that it differs from most."""
    lines = ["| model | saved under | plans that go on | largest error | under |", "|---|---|--:|--:|---|"]
    for (family, source), found in errors.items():
        worst = max(found, key=lambda target: found[target])
        lines.append(f"| {family} | {source} | {len(found)} | {found[worst]:.1e} | {worst} |")
    return "\n".join(lines)


def saves_table(saves: dict[str, dict[str, float]]) -> str:
    """Both ways of saving: how long it lasts, and how long the run waits."""
    lines = ["| saved | step | a checkpoint lasts | the run waits | of a step |", "|---|--:|--:|--:|--:|"]
    for way, of in saves.items():
        seconds = " | ".join(f"{of[name] * 1e3:.1f} ms" for name in ("step_s", "lasted_s", "blocked_s"))
        lines.append(f"| {way} | {seconds} | {of['blocked_s'] / of['step_s']:.1%} |")
    return "\n".join(lines)


def mutated_rows(mutated: Counter[str]) -> str:
    """A row for files with the digests of the original, and one for those with their own."""
    rows = []
    for way, name in (("unsigned", "of the original"), ("signed", "signed")):
        of = {key.partition(": ")[2]: count for key, count in mutated.items() if key.startswith(f"{way}:")}
        accepted = sum(count for key, count in of.items() if key.startswith("accepted"))
        cells = (sum(of.values()), of.get("refused", 0), accepted, of.get("traceback", 0))
        rows.append(f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    return "\n".join(rows)


def every_mutated_file() -> tuple[Counter[str], list[str]]:
    """Return what became of all mutated files, and the first errors that were no refusals."""
    counts, tracebacks = Counter[str](), []
    for number in range(MUTATED // AT_ONCE):
        found = kept(f"mutated files {number}", lambda number=number: mutated_files(AT_ONCE, SEED + number))
        counts.update(found["counts"])
        tracebacks += found["tracebacks"]
    return counts, tracebacks


def page(
    errors: dict[tuple[str, str], dict[str, float]],
    large: dict[str, Any],
    saves: dict[str, dict[str, float]],
    mutated: Counter[str],
) -> str:
    """The page."""
    every = [error for found in errors.values() for error in found.values()]
    shard, peak, read = (large[key] / 1e9 for key in ("shard_bytes", "peak_bytes", "bytes_read"))
    return f"""# Recovery

Made by `python benchmarks/recover.py --write` (`make recover`), version {__version__}, {date.today()}.

## Checkpoints between plans

A run of five steps in fp64 is saved after three. New processes go on under another plan, and losses, gradient norms,
parameters and both moments are compared with the run in one piece under the first plan. The error is the largest
difference in units of the largest value of a tensor. Plans: `tests/runtime/checkpoint/reshard_plans.py`.

{len(every)} ordered pairs of plans, {sum(error <= LIMIT for error in every)} within {LIMIT:g};
the largest error is {max(every):.1e}.

{pairs_table(errors)}

## A rank of a 70B model

Llama-3.1-70B saved by 128 ranks under tp 8, pp 4, dp_shard 4, zero1, as sparse files of
{large["checkpoint_bytes"] / 1e9:.0f} GB. Rank 5 of 128 reads its part under tp 4, pp 2, dp_shard 16, zero3, in a
process of its own (`benchmarks/recover/large_restore.py`), with digests.

| | |
|---|--:|
| shard of the rank | {shard:.2f} GB |
| peak memory of the process | {peak:.2f} GB, {peak / shard:.2f} times the shard (limit {MEMORY_LIMIT}) |
| read from {large["files_read"]} files | {read:.2f} GB in {large["chunks_read"]} chunks, {read / shard:.2f} times |
| read twice | {large["bytes_read_twice"]} bytes |

## Mutated files

A checkpoint of two ranks is read under another plan, after a bit of one of its files (shard, manifest or its digest)
was flipped, or bytes were cut off, put in, overwritten or removed: {sum(mutated.values()):,} files, seeds from {SEED}.
*Signed*: the manifest has the digests of the mutated file, so that headers and manifests are read as they are; such a
file may be accepted, with other values.

| digests | mutated files | refused with a message | accepted | tracebacks |
|---|--:|--:|--:|--:|
{mutated_rows(mutated)}

## Saving in the background

Two ranks on a CPU (fp32, zero1) save to a disk that is slowed until a checkpoint lasts {STEPS_OF_A_SAVE} steps; medians
of four checkpoints. Without a slowed disk copying is all that could make the run wait
(`benchmarks/recover/background_saves.py`).

{saves_table(saves)}
"""


def main() -> None:
    """Run what is not kept and print the page."""
    torch.set_num_threads(1)
    if "--again" in sys.argv[1:]:
        shutil.rmtree(KEPT, ignore_errors=True)
    errors = {
        (family, source): kept(
            f"pairs {family} {source}", lambda family=family, source=source: errors_from(family, source)
        )
        for family, plans in FAMILIES.items()
        for source in plans
    }
    large = kept("large", large_restore)
    mutated, tracebacks = every_mutated_file()
    text = page(errors, large, kept("background saves", background_saves), mutated)
    print(text)
    if "--write" in sys.argv[1:]:
        (HERE / "recover.md").write_text(text, encoding="utf-8")
    worst = max(error for found in errors.values() for error in found.values())
    for error in tracebacks:
        print(error, file=sys.stderr)
    bad = tracebacks or mutated["unsigned: accepted"]
    sys.exit(bool(worst > LIMIT or large["peak_bytes"] > MEMORY_LIMIT * large["shard_bytes"] or bad))


if __name__ == "__main__":
    main()
