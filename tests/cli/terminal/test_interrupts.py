"""A verb that is interrupted says so and ends as shells expect it."""

import pytest
from typer.testing import CliRunner

from meshwright import api
from meshwright.cli.main import app

PLAN = ("plan", "llama-3.1-8b", "--on", "h100-sxm-80gb x 8", "--seq-len", "4096", "--global-batch", "64")


@pytest.mark.parametrize("words", [PLAN, (*PLAN, "--json"), ("schedule", "list")])
def test_an_interrupt_is_said(monkeypatch, words):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "plan", interrupted)
    monkeypatch.setattr(api, "schedules", interrupted)
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == "Interrupted before there was an answer.\n"
