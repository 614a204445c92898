"""Shell scripts are read, never run."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.frameworks.importing.command_line import given_options, last_of_each
from meshwright.frameworks.importing.shell_script import read_script


def words(text):
    return [word.text for word in read_script(text).words]


def options(text):
    return {
        name: option.values for name, option in last_of_each(given_options(read_script(text).words)).items()
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a b  c", ["a", "b", "c"]),
        ("a 'b c' \"d e\"", ["a", "b c", "d e"]),
        ("a \\\n  b # c\nd", ["a", "b", "d"]),
        ("a#b", ["a#b"]),
        ('X=3\nrun $X ${X} "$X" ${X}4', ["run", "3", "3", "3", "34"]),
        ("N=${NODES:-4}; run $N", ["run", "4"]),
        ("N=$1\nrun $N", ["run", "$1"]),
        ("A=8 B=2\nC=$((A*B + 1))\nrun $C $((C/4))", ["run", "17", "4"]),
        ("A=x\nA+=y\nrun $A", ["run", "xy"]),
        ("run $(rm -rf /) `reboot` $HOME", ["run", "$(rm -rf /)", "`reboot`", "$HOME"]),
        ("echo --not-an-option 3\nrun", ["run"]),
        ("export A=5 B=6; run $A$B", ["export", "run", "56"]),
    ],
)
def test_words(text, found):
    assert words(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run --a 1 --b --c=3", {"--a": ("1",), "--b": (), "--c": ("3",)}),
        ("ARGS=(\n  --a 1 # one\n  --b 2 3\n)\nrun ${ARGS[@]}", {"--a": ("1",), "--b": ("2", "3")}),
        ('ARGS="--a 1 \\\n --b 2"\nrun $ARGS', {"--a": ("1",), "--b": ("2",)}),
        ('ARGS+=("--a 1" "--b")', {"--a": ("1",), "--b": ()}),
        ("run --a 1\nrun --a 2", {"--a": ("2",)}),
        ("run --a 1\nif [ x ]; then\nrun --a 2\nfi", {"--a": ("1",)}),
        ("if [ x ]; then\nrun --a 2\nfi\nrun --a 1", {"--a": ("1",)}),
        ("T=8\nrun --a $T | tee log --b", {"--a": ("8",), "--b": ()}),
    ],
)
def test_options(text, found):
    assert options(text) == found


@pytest.mark.parametrize(
    "script",
    [
        "T=8\nif [ $D = 1 ]; then T=2; fi\nrun --a $T",
        'T=8\n[ -n "$D" ] && T=2\nrun --a $T',
        "T=8\ncase $D in\n1) T=2 ;;\nesac\nrun --a $T",
    ],
)
def test_a_condition_changes_no_variable_that_has_a_value_and_is_named(script):
    read = read_script(script)
    assert [word.text for word in read.words][-2:] == ["--a", "8"]
    assert list(read.unsure) == ["T"]


def test_what_is_pinned_stays():
    assert words("readonly T=4;T=8\nT=$(count)\nrun $T")[-1] == "4"
    assert words("readonly 1=4;T=$1\nrun $T")[-1] == "4"


def test_a_value_that_only_a_shell_knows_is_not_known():
    (option,) = given_options(read_script("run --size $SIZE").words)
    assert not option.known


def test_values_that_grow_without_limit_are_refused():
    text = "A=" + "x" * 100 + "\n" + "A=$A$A$A$A\n" * 20
    with pytest.raises(InputError, match="grows over"):
        read_script(text)


def test_arithmetic_is_whole_numbers_and_nothing_else():
    assert "0" not in words("run $((__import__('os').system('true'))) $((len))")
    assert words("A=9**9**9\nrun $((9**9**9)) $((1/0))") == ["run", "$((9**9**9))", "$((1/0))"]


@given(st.text(alphabet="ab'\"\\$(){}`;|&<>#= \n-1", max_size=200))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(InputError):
        read_script(text)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "piece", ["'", '"', "$(", "${", "`", "\\", "$((", "=(", "(", "\\\n", "--a ", "A=$A;"]
)
def test_long_hostile_text_is_read_or_refused(piece):
    with contextlib.suppress(InputError):
        read_script(piece * (100_000 // len(piece)))
