"""Runs the scripts of an export with programs on PATH that only print what they were given."""

import os
import subprocess
from pathlib import Path

from export_cases import Case

PRINTS = '#!/usr/bin/env bash\nprintf "%s\\n" "${CUDA_DEVICE_MAX_CONNECTIONS:-unset}" "$@"\n'


def run(this: Case, target: str, folder: Path, script: str, **variables: str) -> list[str]:
    """Lines that the program at the end of the chain printed."""
    programs = {"torchrun": PRINTS, "scontrol": "#!/bin/sh\necho node0\necho node1\n"}
    programs["srun"] = '#!/usr/bin/env bash\nshift\nexec "$@"\n'
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for path, text in this.to(target).files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    known = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), **variables}
    command = ["bash", str(folder / target / script), "--extra", "a b"]
    done = subprocess.run(command, env=known, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.splitlines()
