"""Arguments of a launch script, and the JSON line that each script of this folder prints.

Standard library only: every target's environment can run it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

SAYS = '#!/usr/bin/env bash\nprintf "%s\\0" "$@"\n'


def program_arguments(launcher: Path, program: str, variables: Mapping[str, str]) -> list[str]:
    """Return the arguments of ``program`` in a launch script, by a stand-in that prints them."""
    with tempfile.TemporaryDirectory() as folder:
        stand_in = Path(folder) / program
        stand_in.write_text(SAYS, encoding="utf-8")
        stand_in.chmod(0o755)
        known = {"PATH": f"{folder}:{os.environ['PATH']}", "NODE": "0", **variables}
        command = ["bash", str(launcher)]
        done = subprocess.run(command, env=known, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def print_verdict(read_back: Callable[[Path], Mapping[str, object]]) -> None:
    """Print ``{"accepted", "message", "values"}`` for the folder that is named on the command line."""
    try:
        verdict = {"accepted": True, "message": "", "values": dict(read_back(Path(sys.argv[1])))}
    except (Exception, SystemExit) as error:
        verdict = {"accepted": False, "message": f"{type(error).__name__}: {error}", "values": {}}
    print(json.dumps(verdict, default=str))
