"""Have scripts read by their own parsers: bash, Python, and torchrun where torch is installed."""

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from importlib.resources import files

from meshwright.launchers.parsers.option_tables import TORCHRUN, torchrun_table_faults

LIMIT_S = 120
NO_TORCH = 3
"""Exit code of ``scripts/torchrun_parser.py`` where torch is missing."""
VARIABLE = re.compile(r"\$\{(\w+)[^}]*\}|\$(\w+)")
PROGRAM_NEXT = "--no-python"
"""The option in front of the program; what follows the program is not torchrun's."""
NUMBERS = ("NODE_RANK", "MASTER_PORT", "NNODES")
"""Variables of ``launch.sh`` that stand for numbers."""


def bash_faults(text: str) -> tuple[str, ...]:
    """Return what ``bash -n`` says against a script."""
    try:
        done = subprocess.run(
            ["bash", "-n"], input=text, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except FileNotFoundError:
        return ("bash, which reads the script, is not installed here",)
    return tuple(done.stderr.splitlines()) or (() if done.returncode == 0 else ("refused",))


def python_faults(text: str) -> tuple[str, ...]:
    """Return what the compiler says against a program."""
    try:
        compile(text, "job", "exec", dont_inherit=True)
    except SyntaxError as error:
        return (str(error),)
    return ()


def torchrun_faults(script: str) -> tuple[str, tuple[str, ...]]:
    """Return the reader and its faults of the torchrun command in a script: torchrun's own parser, or the table."""
    return _parsed(tuple(torchrun_words(script)))


@cache
def _parsed(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    program = (
        files("meshwright.launchers").joinpath("scripts", "torchrun_parser.py").read_text(encoding="utf-8")
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(words),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if done.returncode == NO_TORCH:
        return TORCHRUN, torchrun_table_faults(words)
    if done.returncode:
        return "torchrun's own parser", tuple(done.stderr.strip().splitlines()[-1:]) or ("refused",)
    return f"torchrun's own parser ({done.stdout.strip()})", ()


def torchrun_words(script: str) -> list[str]:
    """Return the words behind ``exec torchrun`` up to its program, with a value for each variable."""
    command = script.partition("exec torchrun")[2].replace("\\\n", " ").partition("\n")[0]
    filled = VARIABLE.sub(lambda found: "1" if (found[1] or found[2]) in NUMBERS else "value", command)
    words = shlex.split(filled)
    end = words.index(PROGRAM_NEXT) + 2 if PROGRAM_NEXT in words else len(words)
    return words[:end]
