"""Run the steps of a target, keep what passes, and write a summary page.

    python benchmarks/run_steps.py proof|refit|refit-serving|parsers [--runs RUNS.csv] [--only WORD ...]

The targets of the Makefile of these names call it. The steps are those of ``steps.yaml``. Two run at a time in the
order of the table; the steps that must be alone follow, one by one. A step that passes is kept under its hash
(``step_table.py``) in ``.cache/steps`` and does not run again while the hash and what it wrote stay the same, so that
an interrupted call resumes. A failing step stops no other. The output of each step is in ``.cache/steps/NAME.log``.

``--runs`` names the table of measured runs, which is not part of the repository: steps that need it do not run without
it. ``--only`` runs the steps whose names have one of the words. The summary is ``benchmarks/TARGET.md``. Exits with 1
where a step fails.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from step_page import FAILED, KEPT, NOT_RUN, PASSED, Result, summary, summary_page
from step_table import TARGETS, Step, hash_of, hash_of_written, missing, read_steps

ROOT = Path(__file__).resolve().parents[1]
AT_A_TIME = 2
LAST_LINES = 15


@dataclass(frozen=True)
class Runner:
    """Runs steps in a repository and keeps what passes."""

    root: Path
    runs: str = ""

    @property
    def folder(self) -> Path:
        """Where results and outputs are kept."""
        return self.root / ".cache" / "steps"

    def run(self, step: Step) -> Result:
        """Run a step unless it passed with the same hash, and print how it went."""
        result = self.kept(step)
        if result.result == NOT_RUN and not result.remark:
            result = self._fresh(step, result.hash)
        print(
            f"{result.result:13} {result.seconds:8.1f} s  {step.name}  {result.remark}".rstrip(), flush=True
        )
        if result.result == FAILED:
            print(self._last_lines(step), flush=True)
        return result

    def kept(self, step: Step) -> Result:
        """Return what is kept of a step: that it passed with this hash, or that it has not run."""
        lacking = missing(step, self.runs, self.root)
        if lacking:
            return Result(step.name, NOT_RUN, remark=f"needs {', '.join(lacking)}")
        digest = hash_of(step, self.runs, self.root)
        path = self.folder / f"{digest}.json"
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if found.get("written") != hash_of_written(step, self.root):
            return Result(step.name, NOT_RUN, hash=digest)
        return Result(step.name, KEPT, found["seconds"], found["date"], digest)

    def _fresh(self, step: Step, digest: str) -> Result:
        self.folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with self._log(step).open("w", encoding="utf-8") as log:
            command = [sys.executable, *step.with_runs(self.runs)]
            code = subprocess.call(command, cwd=self.root, stdout=log, stderr=subprocess.STDOUT)
        seconds, today = round(time.monotonic() - began, 1), date.today().isoformat()
        if code:
            return Result(step.name, FAILED, seconds, today, digest, f"exit code {code}; {self._log(step)}")
        written = hash_of_written(step, self.root)
        kept = {"step": step.name, "seconds": seconds, "date": today, "written": written}
        (self.folder / f"{digest}.json").write_text(json.dumps(kept) + "\n", encoding="utf-8")
        return Result(step.name, PASSED, seconds, today, digest)

    def _log(self, step: Step) -> Path:
        return self.folder / f"{step.name}.log"

    def _last_lines(self, step: Step) -> str:
        lines = self._log(step).read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-LAST_LINES:])


def run_all(steps: Sequence[Step], run: Callable[[Step], Result]) -> list[Result]:
    """Run two steps at a time, then those that must be alone; return the results in the order of the table."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        shared = [step for step in steps if not step.alone]
        results = dict(zip(shared, pool.map(run, shared), strict=True))
    results |= {step: run(step) for step in steps if step.alone}
    return [results[step] for step in steps]


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Run the steps of a target and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--runs", default="", metavar="RUNS.csv")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    options = parser.parse_args(arguments)
    runner = Runner(root, options.runs)
    steps = [step for step in read_steps(root) if step.target == options.target]

    def asked(step: Step) -> bool:
        return any(word in step.name for word in options.only)

    began = time.monotonic()
    results = run_all(steps, lambda step: runner.run(step) if asked(step) else runner.kept(step))
    seconds = time.monotonic() - began
    page = root / "benchmarks" / f"{options.target}.md"
    page.write_text(summary_page(options.target, results, seconds), encoding="utf-8")
    print(f"make {options.target}: {summary(results, seconds)} Summary: {page}")
    return int(any(result.result == FAILED for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
