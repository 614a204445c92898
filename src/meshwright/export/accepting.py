"""Does the target's own parser accept what was exported? Asked of the target itself, in a Python that has it.

``parsers/TARGET_accepts.py`` runs there as a program of its own: it takes the folder of exported files, hands them to
the target's parser and prints one JSON line with the verdict and the values that the parser read back. Nothing of the
target is imported here.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from meshwright.errors import InputError, MeasurementError, Problem

LONGEST_S = 600
MODULES: Mapping[str, str] = {
    "megatron": "megatron.training",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
}
"""The module that a Python must have to ask a target; others have no parser that runs without a GPU."""
NO_PARSER: Mapping[str, str] = {
    "bridge": "Megatron-Bridge needs CUDA libraries to be imported; its override tree is held against its release's "
    "field names when it is written",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target said, and the values that it read back."""

    accepted: bool
    message: str
    values: Mapping[str, object]
    python: str

    def to_json(self) -> dict[str, object]:
        """The public form."""
        return {
            "accepted": self.accepted,
            "message": self.message,
            "values": dict(self.values),
            "python": self.python,
        }


def ask(target: str, texts: Mapping[str, str], python: str) -> Verdict:
    """Ask the target in the interpreter ``python``. Raises InputError where it can not be asked there."""
    if target not in MODULES:
        reason = NO_PARSER.get(target, "no parser of this target is known")
        raise InputError(Problem("check", target, reason, "export without --check"))
    _has_module(python, MODULES[target])
    with tempfile.TemporaryDirectory() as folder, as_file(files("meshwright.export") / "parsers") as scripts:
        for name, text in texts.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        script = scripts / f"{target}_accepts.py"
        said = _run([python, str(script), str(Path(folder) / target)])
    return _verdict(said, python)


def _has_module(python: str, module: str) -> None:
    found = _run([python, "-c", f"import importlib.util as u; print(bool(u.find_spec({module!r})))"])
    if found.stdout.strip().endswith("True"):
        return
    rule = f"{python} has no {module}"
    hint = "--python of an environment that has it; scripts/parsers.sh makes one"
    raise InputError(Problem("python", python, rule, hint))


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    except OSError as error:
        rule = f"cannot be run: {error.strerror or error}"
        raise InputError(Problem("python", command[0], rule, "the path of a Python interpreter")) from error
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"the target's parser did not answer in {LONGEST_S} s") from error


def _verdict(said: "subprocess.CompletedProcess[str]", python: str) -> Verdict:
    """The last line that is JSON; frameworks print much before it."""
    for line in reversed(said.stdout.splitlines()):
        if line.startswith("{"):
            data = json.loads(line)
            return Verdict(bool(data["accepted"]), str(data["message"]), data["values"], python)
    last = (said.stderr.strip().splitlines() or ["nothing"])[-1]
    raise MeasurementError(f"the target's parser ended without a verdict; it said last: {last[:300]}")
