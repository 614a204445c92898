"""The options of the command line are frozen: scripts rely on them.

After a change on purpose: ``python scripts/write_docs.py --options``.
"""

import command_line
import pytest
from source_tree import ROOT
from typer.testing import CliRunner

from meshwright.cli.main import app

FROZEN = ROOT / "tests" / "house" / "cli_options.txt"
VERBS = [
    *("plan", "describe", "models", "devices", "stacks", "predict", "compare"),
    *("explain", "report", "export", "import", "check"),
    *(
        "verify",
        "run",
        "launch",
        "convert",
        "measure",
        "probe",
        "ingest",
        "validate",
        "calibrate",
        "schedule",
        "web",
    ),
]


def test_no_option_appears_or_vanishes_unnoticed():
    assert command_line.frozen_list() == FROZEN.read_text(encoding="utf-8")


def test_every_verb_has_json_and_debug():
    assert [verb.name for verb in command_line.verbs()] == VERBS
    for verb in command_line.verbs():
        assert {"--json", "--debug"} <= {name for p in verb.parameters for name in p.names}


def test_every_parameter_is_explained():
    silent = [p.usage for verb in command_line.verbs() for p in verb.parameters if not p.help.endswith(".")]
    assert not silent


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_what_the_list_has(verb):
    shown = CliRunner().invoke(app, [verb, "--help"]).output
    (found,) = [known for known in command_line.verbs() if known.name == verb]
    names = [name for p in found.parameters if not p.hidden for name in p.names]
    assert not [name for name in names if name not in shown]
