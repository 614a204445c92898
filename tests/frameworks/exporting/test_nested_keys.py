from meshwright.frameworks.nested_keys import is_known, nested_keys, unknown_keys

NAMES = frozenset(("a", "a.b", "a.b.c", "open", "open.*"))


def test_sections_come_before_what_is_in_them() -> None:
    data = {"a": {"b": {"c": 1}}, "d": 2}
    assert [path for path, _ in nested_keys(data)] == [("a",), ("a", "b"), ("a", "b", "c"), ("d",)]


def test_an_unknown_section_is_named_once_without_its_keys() -> None:
    assert list(unknown_keys({"a": {"x": {"y": 1}}, "z": 1}, NAMES)) == [(("a", "x"), {"y": 1}), (("z",), 1)]


def test_a_star_stands_for_everything_below() -> None:
    assert list(unknown_keys({"open": {"x": {"y": 1}}}, NAMES)) == []


def test_a_name_with_a_dot_is_no_path() -> None:
    assert not is_known(("a.b",), NAMES)
    assert is_known(("a", "b"), NAMES)
