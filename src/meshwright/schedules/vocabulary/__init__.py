"""A vocabulary that is spread over the pipeline's ranks: S and T in the lists of any schedule.

Every rank holds 1/P of the tables of embedding and head, and does 1/P of the head's work for every micro-batch: pass S
once the last stage's output has come, pass T behind it, with exchanges between all ranks (Yeung et al., arXiv
2411.05288). ``FORMS`` is the table that documentation and contract tests read; its names are the paper's, whose
Vocab-1 has two barriers and Vocab-2 one. ``scripts/compare_placements.py`` plays
both and the alternatives: embedding and head at the ends of the pipeline, with layers evenly or otherwise.

``embedding_passes.py`` adds what the embedding needs: a look-up on each rank before the first stage's forward pass,
and the gradients of its rows behind that stage's backward pass. Both move bytes and multiply nothing; bare lists
leave them out.
"""

from meshwright.schedules.vocabulary.interlaced import interlaced
from meshwright.schedules.vocabulary.vocab_1_vocab_2 import vocabulary_parallel
from meshwright.schedules.vocabulary.vocabulary_form import VocabularyForm

FORMS: dict[str, VocabularyForm] = {
    "vocab-1": VocabularyForm(
        make=vocabulary_parallel,
        barriers=2,
        summary="beside other passes, with two barriers and two micro-batches more",
    ),
    "vocab-2": VocabularyForm(
        make=vocabulary_parallel,
        barriers=1,
        summary="beside other passes, with one barrier and one micro-batch more",
    ),
    "interlaced": VocabularyForm(
        make=interlaced,
        barriers=2,
        summary="on all ranks at once, with half as many micro-batches more",
        exposed=True,
        only="1f1b",
    ),
}
DEFAULT_FORM = "vocab-1"
"""The form of a plan that spreads the vocabulary and does not say how."""
