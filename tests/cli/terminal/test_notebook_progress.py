"""Progress in notebooks, with a display that keeps what it is given."""

import sys
from types import SimpleNamespace

import pytest

from meshwright.cli.terminal import notebook_progress as module
from meshwright.cli.terminal.notebook_progress import notebook_progress


class Handle:
    def __init__(self, shown):
        self.shown = shown

    def update(self, data, *, raw):
        assert raw
        self.shown.append(data)


@pytest.fixture
def shown(monkeypatch):
    """What a notebook shows, one after the other in one place."""
    found = []

    def display(data, *, raw, display_id):
        assert raw
        assert display_id
        found.append(data)
        return Handle(found)

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(module, "UPDATES_EVERY_S", 0.0)
    return found


def test_the_line_shows_part_and_activity_and_is_empty_at_the_end(shown):
    with notebook_progress() as progress:
        progress("pricing <b>", 0.25)
        progress("sorting", 0.5)
        assert [one["text/plain"] for one in shown] == [
            "##........  25% pricing <b>",
            "#####.....  50% sorting",
        ]
        assert "&lt;b&gt;" in shown[0]["text/html"]
        assert 'value="0.250"' in shown[0]["text/html"]
    assert shown[-1] == {"text/plain": "", "text/html": ""}


def test_the_line_is_erased_after_an_error(shown):
    def fail():
        with notebook_progress() as progress:
            progress("pricing", 0.1)
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fail()
    assert shown[-1]["text/html"] == ""


def test_a_call_without_news_shows_nothing(shown):
    with notebook_progress():
        pass
    assert shown == []


def test_news_in_quick_succession_are_shown_once(shown, monkeypatch):
    monkeypatch.setattr(module, "UPDATES_EVERY_S", 3600.0)
    with notebook_progress() as progress:
        for step in range(100):
            progress("pricing", step / 100)
    assert len(shown) == 2


def test_outside_of_a_notebook_there_is_no_display(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    with notebook_progress() as progress:
        assert progress is None


def test_a_terminal_of_ipython_is_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))
    with notebook_progress() as progress:
        assert progress is None
