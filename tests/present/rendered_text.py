"""Renderings as text, and as they would be from the JSON alone."""

import contextlib
import io
import json

HOSTILE = "[bold]no[/red] markup[/] \\"


def text_of(render, *arguments) -> str:
    """What a rendering prints to standard output."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        render(*arguments)
    return out.getvalue()


def through_json(data):
    """The data as a reader of the JSON has it."""
    return json.loads(json.dumps(data, allow_nan=False))


def rendered(render, data, *rest) -> str:
    """The text of a rendering, which must be the same from the JSON and the second time."""
    text = text_of(render, through_json(data), *rest)
    assert text == text_of(render, data, *rest)
    assert text.strip()
    assert "[bold]" not in text.replace(HOSTILE.split()[0], "")
    return text


def with_hostile_text(value):
    """The same data with every text that is free replaced by one full of markup; keys and choices stay."""
    if isinstance(value, dict):
        return {key: with_hostile_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_hostile_text(item) for item in value]
    return HOSTILE if isinstance(value, str) else value
