"""Small tokenizers as files, of the kinds that released models have."""

import json

from tokenizers import Tokenizer, models, pre_tokenizers, processors


def word_tokenizer(folder, words=("a", "b", "c"), specials=("<unk>",), **beside):
    """A ``tokenizer.json`` with one id a word, specials first; ``beside`` are JSON files in its folder."""
    vocab = {word: i for i, word in enumerate([*specials, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=specials[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(specials))
    folder.mkdir(exist_ok=True, parents=True)
    for name, data in beside.items():
        (folder / f"{name}.json").write_text(json.dumps(data))
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def eager_tokenizer(folder):
    """One that wraps texts in special tokens, cuts them off at 4 and fills them up to 8, as files of encoders do."""
    tokenizer = word_tokenizer(folder, specials=("<unk>", "</s>"))
    pair = [("</s>", tokenizer.token_to_id("</s>"))]
    tokenizer.post_processor = processors.TemplateProcessing("</s> $A </s>", special_tokens=pair)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))
