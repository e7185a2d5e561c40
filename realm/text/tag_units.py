"""Sentences as units of a tagger: words in wordpieces, and for each word the place of its first piece.

A word's label is predicted at its first wordpiece; the other pieces are read and not predicted (Devlin et al. 2019,
section 5.3). A sentence that is longer than a batch is cut between words into several units, so that every word of it
is trained on, tagged and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from realm.text.conll import OUTSIDE, ConllError, LabelledSentence, bio, label_spans, read_conll
from realm.text.tokenizer import Tokenizer
from realm.text.units import inside

NOWHERE = -1  # the place of a word that the tokenizer finds nothing in


class Vocabulary(NamedTuple):
    """All that a tagger needs of a corpus; a block table serves as well."""

    tokenizer: Tokenizer


class TagUnit(NamedTuple):
    """Words of one sentence: token_T int32, no special tokens; first_W int32, where in token_T each word begins or
    NOWHERE; label_W int32, its label's number (`label_names`), 0 where labels are not known. sentence, word: the
    sentence's number and the first word's in it. special: the tokenizer."""

    sentence: int
    word: int
    token_T: np.ndarray
    first_W: np.ndarray
    label_W: np.ndarray
    special: Tokenizer


def label_names(kinds: Sequence[str]) -> list[str]:
    """O, then B- and I- of each type: the labels by their number."""
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI")]


class TagUnits:
    """The units of sentences, in order. length_N int32: wordpieces with [CLS] and [SEP]; counts: units, sentences,
    words, and words without a wordpiece, which are never predicted."""

    def __init__(
        self,
        sentences: Sequence[Sequence[str]],
        tokenizer: Tokenizer,
        *,
        max_tokens: int,
        labels: Sequence[Sequence[int]] | None = None,
        names: Sequence[str] | None = None,
    ):
        room = max_tokens - 2
        if room < 1:
            raise ConllError(f"found max_tokens {max_tokens}, wanted at least 3: [CLS], a wordpiece, [SEP]")
        self._names = names
        self._units: list[TagUnit] = []
        known = sorted({word for sentence in sentences for word in sentence})
        pieces = dict(zip(known, (one.id_T[:room] for one in tokenizer.encode_batch(known)), strict=True))
        blank = 0
        for number, sentence in enumerate(sentences):
            numbers = np.zeros(len(sentence), np.int32) if labels is None else np.array(labels[number], np.int32)
            for low, high in _cut([len(pieces[word]) for word in sentence], room):
                parts = [pieces[word] for word in sentence[low:high]]
                size_W = np.array([len(part) for part in parts], np.int32)
                first_W = np.where(size_W > 0, np.cumsum(size_W) - size_W, NOWHERE).astype(np.int32)
                token_T = np.concatenate([np.zeros(0, np.int32), *parts])
                self._units.append(TagUnit(number, low, token_T, first_W, numbers[low:high], tokenizer))
                blank += int((size_W == 0).sum())
        self.length_N = np.array([len(unit.token_T) + 2 for unit in self._units], np.int32)
        words = sum(map(len, sentences))
        self.counts = {
            "taken": len(self._units),
            "sentences": len(sentences),
            "words": words,
            "words without wordpieces": blank,
        }

    @classmethod
    def read(
        cls,
        paths: Iterable[str | Path],
        tokenizer: Tokenizer,
        kinds: Sequence[str],
        *,
        max_tokens: int,
        holdout: float = 0.0,
        heldout: bool | None = False,
    ) -> TagUnits:
        """The units of CoNLL files. heldout: False leaves out the last `holdout` of each file's sentences, True takes
        these alone, None takes all. Raises ConllError, also for an entity of another type than `kinds`."""
        sentences = [one for path in paths for one in chosen_sentences(path, holdout, heldout)]
        number = {label: place for place, label in enumerate(label_names(kinds))}
        labels = []
        for sentence in sentences:
            spans = label_spans(sentence.labels)
            if other := {kind for _, _, kind in spans} - set(kinds):
                raise ConllError(f"{sentence.where}: found an entity of {sorted(other)}, wanted one of {list(kinds)}")
            labels.append([number[label] for label in bio(spans, len(sentence.words))])
        words = [sentence.words for sentence in sentences]
        names = [sentence.where for sentence in sentences]
        return cls(words, tokenizer, max_tokens=max_tokens, labels=labels, names=names)

    def __len__(self) -> int:
        return len(self._units)

    def __getitem__(self, index: int) -> TagUnit:
        """Unit `index`. Raises IndexError outside 0 .. len - 1."""
        return self._units[inside(index, self)]

    def name(self, index: int) -> str:
        """What a message calls unit `index`: file and line of its sentence."""
        sentence = self[index].sentence
        return self._names[sentence] if self._names else f"sentence {sentence}"


def chosen_sentences(path: str | Path, holdout: float, heldout: bool | None) -> list[LabelledSentence]:
    """The sentences of a file without its last `holdout`, these alone, or all: whole stretches, since neighbours are
    often of one article."""
    sentences = list(read_conll(path))
    cut = len(sentences) - round(len(sentences) * holdout)
    return sentences if heldout is None else sentences[cut:] if heldout else sentences[:cut]


def _cut(size_W: Sequence[int], room: int) -> list[tuple[int, int]]:
    """(first word, end) of stretches of at most `room` wordpieces; no word has more."""
    cuts, low, held = [], 0, 0
    for place, size in enumerate(size_W):
        if held + size > room:
            cuts.append((low, place))
            low, held = place, 0
        held += size
    if low < len(size_W):
        cuts.append((low, len(size_W)))
    return cuts
