"""The one door to spaCy, an extra: entities by a trained pipeline of the user's.

spaCy brings its own models as packages; which one is asked for by name. Its numbers (dates, times, amounts, ordinals)
are no entities here: REALM masks named entities and dates, and dates are our finder's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from realm.text.spans import RawSpan
from realm.text.taggers import Marked, TaggerError

NUMBERS = frozenset({"DATE", "TIME", "PERCENT", "MONEY", "QUANTITY", "ORDINAL", "CARDINAL"})
UNUSED = ("parser", "lemmatizer", "attribute_ruler", "tagger", "morphologizer")


class SpacyTagger:
    """A loaded pipeline `nlp` (anything with `pipe` whose documents have `ents`); `model` is its name."""

    def __init__(self, nlp: Any, model: str):
        self.nlp, self.name = nlp, f"spacy:{model}"

    def tag(self, documents: Sequence[Marked]) -> list[list[RawSpan]]:
        texts = [document.text for document, _ in documents]
        self.nlp.max_length = max(self.nlp.max_length, *map(len, texts), 1)  # a guard against the parser's memory
        return [
            [(one.start_char, one.end_char, one.label_) for one in found.ents if one.label_ not in NUMBERS]
            for found in self.nlp.pipe(texts)
        ]


def load_spacy(model: str) -> SpacyTagger:
    """The tagger of an installed spaCy pipeline. Raises TaggerError where spaCy or the pipeline is missing."""
    try:
        import spacy
    except ImportError as problem:
        raise TaggerError(
            "the tagger spacy needs spaCy, which is not installed: install the extra `spacy` "
            "(pip install 'realm-pretraining[spacy]') and a pipeline such as en_core_web_sm"
        ) from problem
    try:
        nlp = spacy.load(model, exclude=list(UNUSED))
    except (OSError, ImportError, ValueError) as problem:
        raise TaggerError(
            f"found no spaCy pipeline {model!r} ({problem}), wanted the name of an installed one or its folder: "
            f"python -m spacy download {model}"
        ) from problem
    if "ner" not in nlp.pipe_names:
        raise TaggerError(f"found the spaCy pipeline {model!r} of {nlp.pipe_names}, wanted one with `ner`")
    return SpacyTagger(nlp, model)
