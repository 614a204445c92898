"""Kill a training job at random moments, also while it saves, and hold what it did against a run in one piece.

    python benchmarks/kill_resume.py            prints the table
    python benchmarks/kill_resume.py --write    also writes benchmarks/kill-resume.md

Exits with 1 where a killed job differs, or hardly any kill came while a checkpoint was written.

The whole process group gets SIGKILL. The job is then started again with the same command, until it has been killed
``KILLS`` times, and at last until it ends. Every loss and norm that it has logged, those of steps that were taken again
too, is compared with that of a run that was neither killed nor saved; so are the bytes of the last checkpoint.

A job is a command and the places of its log and checkpoints, so another one can be held to the same.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from meshwright import __version__

HERE = Path(__file__).parent
KILLS, STEPS, SEED = 34, 280, 11
PATIENCE_S, GLANCE_S, SAVING_S = 120.0, 0.0003, 0.006
MOMENTS = {"at any time after the start": 4, "at any time between steps": 6, "when a checkpoint appears": 24}
"""When a kill is meant to happen, and how often."""
FEWEST_WHILE_SAVING = KILLS // 2
WAYS = {"at once": (), "in the background": ("--background",)}
"""Ways of saving, with their options of ``resuming_job.py``."""
Observation = tuple[float, float]


@dataclass(frozen=True)
class Killable:
    """A job: ``command`` starts it or lets it go on; ``undisturbed`` is the same without checkpoints on its way."""

    name: str
    command: tuple[str, ...]
    undisturbed: tuple[str, ...]
    metrics: Path
    checkpoints: Path


@dataclass
class Course:
    """What was seen of a job: by step, every (loss, norm) that was logged; when it was killed."""

    seen: dict[int, set[Observation]] = field(default_factory=dict)
    logged: int = 0
    kills: list[str] = field(default_factory=list)
    while_saving: int = 0
    files: dict[str, bytes] = field(default_factory=dict)


def small_job(name: str, way: str, folder: Path) -> Killable:
    """A job of ``resuming_job.py`` in a folder."""
    command = (sys.executable, str(HERE / "resuming_job.py"), name, str(folder), str(STEPS), *WAYS[way])
    return Killable(
        name, command, (*command, "--never-save"), folder / "metrics.jsonl", folder / "checkpoints"
    )


def names() -> list[str]:
    """All jobs of ``resuming_job.py``."""
    sys.path.insert(0, str(HERE))
    from resuming_job import JOBS

    return list(JOBS)


def in_one_piece(job: Killable) -> tuple[Course, float]:
    """The run that nothing disturbs, and the seconds until its first step was logged."""
    course, began = Course(), time.monotonic()
    process = _started(job.undisturbed, job)
    _wait(lambda: _size(job.metrics) > 0, process)
    until_first = time.monotonic() - began
    _ended(process)
    _observe(job, course)
    return course, until_first


def killed(job: Killable, until_first: float, draw: random.Random) -> Course:
    """The run that is killed ``KILLS`` times and then left to end."""
    course = Course()
    moments = draw.sample(list(MOMENTS), KILLS, counts=list(MOMENTS.values()))
    for moment in moments:
        before, process = _unfinished(job), _started(job.command, job)
        _wait_for(moment, job, process, until_first, draw)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        course.kills.append(moment)
        course.while_saving += bool(_unfinished(job) - before)
        _observe(job, course)
    _ended(_started(job.command, job))
    _observe(job, course)
    return course


def _wait_for(
    moment: str, job: Killable, process: subprocess.Popen[bytes], until_first: float, draw: random.Random
) -> None:
    """Return at a moment of the kind; fails where the job ends before."""
    if moment == "at any time after the start":
        time.sleep(draw.uniform(0, 1.5 * until_first))
        return
    size = _size(job.metrics)
    _wait(lambda: _size(job.metrics) != size, process)
    if moment == "at any time between steps":
        time.sleep(draw.uniform(0, 0.1))
        return
    time.sleep(draw.uniform(0, 0.05))
    before = _unfinished(job)
    _wait(lambda: _unfinished(job) - before, process)
    time.sleep(draw.uniform(0, SAVING_S))


def differences(course: Course, expected: Course) -> list[str]:
    """Where a killed run is not the run in one piece."""
    found = [f"step {step} was never logged" for step in expected.seen.keys() - course.seen.keys()]
    for step, observations in course.seen.items():
        if observations != expected.seen.get(step):
            found.append(f"step {step}: {observations} in place of {expected.seen.get(step)}")
    if course.files != expected.files:
        found.append("the last checkpoint differs")
    return found


def is_undisturbed(course: Course, wrong: list[str]) -> bool:
    """Return whether all kills came, some of them while saving, and nothing differs."""
    return not wrong and len(course.kills) == KILLS and course.while_saving >= FEWEST_WHILE_SAVING


def proven(name: str, way: str) -> tuple[Course, list[str]]:
    """A job of ``resuming_job.py``, killed, and where it differs."""
    with tempfile.TemporaryDirectory() as folder:
        whole, torn = Path(folder) / "whole", Path(folder) / "torn"
        for place in (whole, torn):
            place.mkdir()
        expected, until_first = in_one_piece(small_job(name, way, whole))
        course = killed(small_job(name, way, torn), until_first, random.Random(f"{SEED} {name} {way}"))
        return course, differences(course, expected)


def _started(command: Sequence[str], job: Killable) -> subprocess.Popen[bytes]:
    """The job in a process group of its own, which leaves nothing elsewhere when it is killed."""
    return subprocess.Popen(
        command, start_new_session=True, env={**os.environ, "TMPDIR": str(job.metrics.parent)}
    )


def _ended(process: subprocess.Popen[bytes]) -> None:
    if process.wait(PATIENCE_S):
        raise RuntimeError(f"the job ended with exit code {process.returncode}")


def _wait(condition, process: subprocess.Popen[bytes]) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError("the job ended before it could be killed, or does nothing: give it more steps")
        time.sleep(GLANCE_S)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _unfinished(job: Killable) -> set[tuple[str, int]]:
    """Checkpoints that are being written or removed, or were when a kill came."""
    entries = os.scandir(job.checkpoints) if job.checkpoints.exists() else ()
    return {(entry.name, entry.inode()) for entry in entries if entry.name.endswith(".unfinished")}


def _observe(job: Killable, course: Course) -> None:
    """What the log says so far, and the last checkpoint's files; a line that a kill cut is none."""
    lines = job.metrics.read_bytes().split(b"\n")[:-1] if job.metrics.exists() else []
    for data in map(json.loads, lines):
        if "loss" in data:
            course.seen.setdefault(data["step"], set()).add((data["loss"], data["grad_norm"]))
    course.logged = len(lines)
    committed = sorted(job.checkpoints.glob("step-*[0-9]"))
    if committed:
        course.files = {path.name: path.read_bytes() for path in committed[-1].glob("*.safetensors")}


def report(results: dict[tuple[str, str], tuple[Course, list[str]]]) -> str:
    """The page."""
    lines = [
        "# Kill -9 and resume",
        "",
        f"Meshwright {__version__}, {date.today()}, seed {SEED}. Each job of {STEPS} steps saves every 2 steps. It is "
        f"killed {KILLS} times",
        "with SIGKILL, the whole process group at once, and started again. `python benchmarks/kill_resume.py --write` "
        "writes this page.",
        "",
        "| job | saved | kills | "
        + " | ".join(MOMENTS)
        + " | left an unfinished checkpoint | steps logged | differences |",
        "|---|---|--:|" + "--:|" * (len(MOMENTS) + 3),
    ]
    for (name, way), (course, wrong) in results.items():
        counts = Counter(course.kills)
        cells = [
            len(course.kills),
            *(counts[moment] for moment in MOMENTS),
            course.while_saving,
            course.logged,
        ]
        lines.append(f"| {name} | {way} | {' | '.join(map(str, cells))} | {len(wrong)} |")
    lines += [
        "",
        "*Steps logged* counts those that were taken again after a kill; all of them are compared. *Differences*",
        "counts steps whose loss or norm is not that of the run in one piece to the bit, steps that are missing, and",
        "a last checkpoint whose shards and moments are not the same bytes.",
        "",
        *(f"* {name}, {way}: {text}" for (name, way), (_, wrong) in results.items() for text in wrong),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    found = {(name, way): proven(name, way) for name in names() for way in WAYS}
    text = report(found)
    print(text)
    if "--write" in sys.argv:
        (HERE / "kill-resume.md").write_text(text, encoding="utf-8")
    sys.exit(not all(is_undisturbed(course, wrong) for course, wrong in found.values()))
