"""Sequence lengths and batches with ``k``, on every verb that has them."""

import pytest
import typer
from command_runs import run

from meshwright.cli.main import app
from meshwright.cli.options.workload_options import parse_size


@pytest.mark.parametrize(
    ("text", "value", "remark"),
    [
        ("8192", 8192, ""),
        (" 8_192 ", 8192, ""),
        ("-1", -1, ""),
        (4096, 4096, ""),
        ("8k", 8192, "Remark: 8k is 8192 (k is 1024).\n"),
        ("128K", 131072, "Remark: 128K is 131072 (k is 1024).\n"),
        ("0k", 0, "Remark: 0k is 0 (k is 1024).\n"),
    ],
)
def test_whole_numbers(capsys, text, value, remark):
    assert parse_size(text) == value
    assert capsys.readouterr().err == remark


@pytest.mark.parametrize("text", ["", "k", "8m", "8kk", "1.5k", "8,192", "eight", "1e3", "9" * 10 + "k"])
def test_other_texts_are_refused_with_the_spelling(text):
    with pytest.raises(typer.BadParameter, match="is not a whole number such as 8192 or 8k"):
        parse_size(text)


def test_every_verb_reads_them_alike():
    options = [
        (verb.name, option)
        for verb in typer.main.get_command(app).commands.values()
        for option in verb.params
        if {"--seq-len", "--global-batch"} & set(option.opts)
    ]
    assert {name for name, _ in options} == {"plan", "describe", "import", "check"}
    for name, option in options:
        done = run(name, "x", f"{option.opts[0]}=8q")
        assert f"Invalid value for '{option.opts[0]}': '8q' is not a whole number" in done.err


def test_an_answer_is_that_of_the_plain_number():
    short, plain = (run("describe", "llama-3.1-8b", "--json", "--seq-len", given) for given in ("8k", "8192"))
    assert short.data == plain.data
    assert short.err == "Remark: 8k is 8192 (k is 1024).\n"
