"""A trained token classifier as a tagger: labels for sentences of words, spans for documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import jax
import numpy as np

from realm.models.tree_hash import tree_hash
from realm.objectives.tagging import Tagging
from realm.protocols import Params
from realm.text.conll import OUTSIDE, label_spans
from realm.text.sentences import sentence_spans
from realm.text.spans import RawSpan
from realm.text.tag_units import NOWHERE, TagUnits
from realm.text.taggers import Marked, words_of
from realm.text.tokenizer import Tokenizer

ROWS = 64  # sentences a batch; the last is filled up, so that there is one shape for each length


class BertTagger:
    """`params` as `Tagging.init` gives them; language: of the rules that cut documents into sentences.

    name: `bert:` and eight digits of a hash of all that decides what it finds, so that spans of two models can be told
    apart wherever their runs lie.
    """

    def __init__(self, objective: Tagging, params: Params, tokenizer: Tokenizer, language: str = "en"):
        self.objective, self.tokenizer, self.language = objective, tokenizer, language
        parts = [tree_hash(params["joint"]), list(objective.labels), tokenizer.fingerprint, language]
        self.name = f"bert:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]}"
        self._params = jax.device_put({"joint": params["joint"]})
        self._predict = jax.jit(objective.predict)

    def labels(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """A label for every word; O for a word in which the tokenizer finds nothing."""
        lengths = self.objective.batch_lengths
        units = TagUnits(sentences, self.tokenizer, max_tokens=lengths[-1])
        names = self.objective.labels
        found = [[OUTSIDE] * len(sentence) for sentence in sentences]
        bucket = np.searchsorted(lengths, units.length_N)
        for place, length in enumerate(lengths):
            chosen = np.flatnonzero(bucket == place)
            for low in range(0, len(chosen), ROWS):
                part = [units[int(number)] for number in chosen[low : low + ROWS]]
                examples = [self.objective.example(unit, None, length) for unit in part]
                examples += [examples[-1]] * (ROWS - len(part))
                names_of = {"token_T": "token_BT", "length": "length_B", "position_M": "position_BM"}
                batch = {new: np.stack([one[old] for one in examples]) for old, new in names_of.items()}
                label_BM = np.asarray(self._predict(self._params, batch))
                for unit, label_M in zip(part, label_BM, strict=False):
                    for slot, word in enumerate(np.flatnonzero(unit.first_W != NOWHERE).tolist()):
                        found[unit.sentence][unit.word + word] = names[label_M[slot]]
        return found

    def tag(self, documents: Sequence[Marked]) -> list[list[RawSpan]]:
        """(start, end, kind) of the entities of each document, whole words inside one sentence."""
        places: list[list[tuple[int, int]]] = []
        words: list[list[str]] = []
        owner: list[int] = []
        for number, (document, _) in enumerate(documents):
            for low, high in sentence_spans(document.text, self.language):
                cut = [(low + start, low + end) for start, end in words_of(document.text[low:high])]
                places.append(cut)
                words.append([document.text[start:end] for start, end in cut])
                owner.append(number)
        spans: list[list[RawSpan]] = [[] for _ in documents]
        for number, place, labels in zip(owner, places, self.labels(words), strict=True):
            spans[number] += [(place[a][0], place[b - 1][1], kind) for a, b, kind in label_spans(labels)]
        return spans
