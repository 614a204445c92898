"""Plans that are launched, and the command in this process."""

import json
import os
import subprocess

from command_runs import plan_text, run, write

START = "from meshwright.cli.main import main; main()"
"""A program that is the command line."""
OURS = {
    "model": "llama-3.2-1b",
    "cluster": "h100-sxm-80gb x 16",
    "layout": "{dp_shard: 16}",
    "pipeline": "{schedule: 1f1b, micro_batch: 1}",
    "stack": "meshwright",
}


def ours(folder, **keys):
    """Write a plan that meshwright run trains, on two nodes."""
    path = folder / "my plan.yaml"
    write(path, plan_text(**OURS | keys))
    return path


def job(plan, on, *words, code=0):
    """Return the document of a dry run."""
    done = run("launch", plan, "--on", on, "--dry-run", "--json", *words)
    assert done.code == code, done
    return done.data


def program(folder, name, text):
    """Put a program into a folder that stands first on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/usr/bin/env bash\n{text}", encoding="utf-8")
    (folder / name).chmod(0o755)


def bash(script, programs, *words, **variables):
    """Run a script with programs in front of those of the system."""
    known = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(programs), **variables}
    return subprocess.run(
        ["bash", str(script), *words], env=known, capture_output=True, text=True, check=False, timeout=60
    )


def losses(folder):
    """Return the loss of each step in a run's folder."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["loss"] for row in map(json.loads, lines) if "loss" in row]
