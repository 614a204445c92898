import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import eager_tokenizer, word_tokenizer

from meshwright.errors import InputError
from meshwright.runtime.data.encoders import ByteEncoder, check_room
from meshwright.runtime.data.hugging_face_tokenizer import load_encoder
from meshwright.runtime.data.train_tokenizer import END, learn_encoder, recipe

WORDS = "the cat sat on the mat, the cat ate the rat. " * 20
TEXT = st.text(st.characters(codec="utf-8"))


@given(text=TEXT)
def test_bytes_are_their_own_ids(text):
    (ids,) = ByteEncoder().encode([text])
    assert bytes(ids.tolist()).decode() == text
    assert ByteEncoder.end_of_document not in ids


@pytest.fixture(scope="module")
def learnt():
    return learn_encoder([WORDS], 300)


@settings(deadline=None)
@given(text=TEXT)
def test_a_learnt_encoder_loses_no_character_and_ends_no_document(text, learnt):
    (ids,) = learnt.encode([text])
    assert learnt.tokenizer.decode(ids.tolist(), skip_special_tokens=False) == text
    assert all(token < learnt.vocab <= 300 for token in ids)
    assert learnt.end_of_document not in ids


def test_a_text_cannot_end_its_document(learnt):
    (ids,) = learnt.encode([f"one{END}two"])
    assert learnt.end_of_document not in ids


def test_learning_joins_what_is_frequent(learnt):
    (ids,) = learnt.encode([WORDS])
    assert len(ids) < len(WORDS) / 2


def test_the_vocabulary_is_never_larger_than_asked_for():
    assert [learn_encoder([WORDS], vocab).vocab for vocab in (257, 260, 270)] == [257, 260, 270]
    assert learn_encoder([WORDS], 100_000).vocab < 600  # no pair is there twice any more


def test_another_process_learns_the_same():
    code = (
        "import sys; from meshwright.runtime.data.train_tokenizer import learn_encoder\n"
        "print(learn_encoder([sys.argv[1]], 300).identity)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code, WORDS], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout == learn_encoder([WORDS], 300).identity + "\n"


def test_learning_from_one_endless_word_ends():
    text = "".join(chr(97 + (i * i // 7 + i // 3) % 26) for i in range(2**19))
    learn_encoder([text], 1000)
    # without the cut it takes minutes


def test_room_for_bytes_is_asked_for():
    check_room(257)
    with pytest.raises(InputError, match="vocabulary >= 257"):
        check_room(256)
    with pytest.raises(InputError, match="vocabulary >= 257"):
        learn_encoder([WORDS], 256)


def test_the_recipe_of_another_vocabulary_is_another():
    assert recipe(300) != recipe(301)


def test_what_a_file_adds_or_cuts_is_left_out(tmp_path):
    eager_tokenizer(tmp_path)
    encoder = load_encoder(tmp_path)
    first, second = encoder.encode(["a b c a b c a b c", "b"])
    assert (first.tolist(), second.tolist()) == ([2, 3, 4] * 3, [3])


def test_the_vocabulary_reaches_to_the_largest_id(tmp_path):
    word_tokenizer(tmp_path, words=("a", "b"), specials=("<unk>", "<eos>"))
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace('"b": 3', '"b": 77'))
    assert load_encoder(tmp_path).vocab == 78


@pytest.mark.parametrize(
    ("beside", "asked", "expected"),
    [
        ({}, None, "</s>"),
        ({}, "<pad>", "<pad>"),
        ({"tokenizer_config": {"eos_token": "<pad>"}}, None, "<pad>"),
        ({"tokenizer_config": {"eos_token": {"content": "<pad>"}}}, None, "<pad>"),
        ({"tokenizer_config": {"eos_token": "<pad>"}}, "</s>", "</s>"),
        ({"tokenizer_config": {"eos_token": None}, "config": {"eos_token_id": 2}}, None, "<pad>"),
        ({"config": {"eos_token_id": [2, 1]}}, None, "<pad>"),
        ({"config": {"eos_token_id": 99}}, None, "</s>"),
        ({"config": {"eos_token_id": -1}}, None, "</s>"),
        ({"config": {"eos_token_id": []}, "tokenizer_config": [1]}, None, "</s>"),
    ],
)
def test_the_end_of_a_document_is_what_was_asked_for_or_the_files_say(tmp_path, beside, asked, expected):
    tokenizer = word_tokenizer(tmp_path, specials=("<unk>", "</s>", "<pad>"), **beside)
    assert load_encoder(tmp_path, asked).end_of_document == tokenizer.token_to_id(expected)


def test_an_end_that_is_not_there_or_not_said_is_asked_for(tmp_path):
    word_tokenizer(tmp_path)
    with pytest.raises(InputError, match="which token ends a document"):
        load_encoder(tmp_path)
    with pytest.raises(InputError, match="no such token"):
        load_encoder(tmp_path, "</s>")
    assert load_encoder(tmp_path, "c").end_of_document == 3


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"version": "1.0", "model": {"type": "BPE"}}'],
)
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_encoder(path)
    assert caught.value.problems[0].field == "tokenizer"


def test_a_tokenizer_that_is_not_there_is_named(tmp_path):
    for path in (tmp_path, tmp_path / "absent.json", "nul\0"):
        with pytest.raises(InputError, match="cannot be read"):
            load_encoder(path)


def test_encoders_that_differ_in_the_end_alone_are_two(tmp_path):
    word_tokenizer(tmp_path)
    assert load_encoder(tmp_path, "b").identity != load_encoder(tmp_path, "c").identity
