"""A part of a corpus, some thousand documents, into the arrays of a block table: array work but for the sentences.

Wordpieces, sentences, blocks and salient spans are found in one row of text (`build_encode`) and then rewritten from
there to block coordinates. A part knows nothing of the others: what needs the whole corpus (row numbers, which blocks
are identical, how many others hold a span) is done when the parts are joined (`build_join`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from realm.text import grouping
from realm.text.build_encode import Encoded, WordEncoder
from realm.text.build_place import DATE, Spans, place
from realm.text.corpus import Document
from realm.text.cut import fill_blocks, lay_all
from realm.text.dates import find_dates
from realm.text.spans import DATES, FILE, RawSpan

FAR = 1 << 40  # further than any text reaches
COUNTS = (
    "documents tokens unknown_wordpieces sentences sentences_with_span sentences_too_short sentences_split "
    "sentences_without_wordpieces words_cut spans titles_cut heldout_documents heldout_blocks"
).split()


class Part(NamedTuple):
    """arrays: the columns of `columns.BLOCK_RAGGED` and DOCUMENT_RAGGED, each with `NAME_count`, the values of every
    row; `document` (counted from 0 in the part), `length`, `heldout`, `digest` (16 bytes) of each block; `tagger` of
    each span, a number in `taggers`; `blocks` and `id_hash` of each document. empty: documents without a wordpiece,
    which leave no row."""

    arrays: dict[str, np.ndarray]
    kinds: list[str]
    taggers: list[str]
    counts: dict[str, int]
    span_skips: dict[str, int]
    empty: int


def assemble(documents: Sequence[tuple[Document, list[RawSpan]]], config: Any, encoder: WordEncoder) -> Part:
    """The blocks of documents with their spans. `config` is a CorpusConfig."""
    counts, skips = Counter(dict.fromkeys(COUNTS, 0)), Counter()
    title = encoder([document.title for document, _ in documents])
    texts = [document.text for document, _ in documents]
    body = encoder(texts)
    title_size_D = np.minimum(np.diff(title.token_D1), config.block_length // 4)
    room_D = config.block_length - 3 - title_size_D
    sentence_S4, sentence_D1 = lay_all(texts, body, room_D=room_D, language=config.language, counts=counts)
    spans, labels, finders = _spans(documents, body, sentence_D1, skips)
    placed_P6 = place(
        body,
        sentence_S4,
        sentence_D1,
        spans,
        labels,
        max_tokens=config.max_span_tokens,
        unk=encoder.tokenizer.unk,
        skips=skips,
    )
    here_D = np.diff(sentence_D1) > 0
    size_S = sentence_S4[:, 1] - sentence_S4[:, 0]
    first, owner, blocks_D = [], [], np.zeros(len(documents), np.int64)
    sizes, begin, room = size_S.tolist(), sentence_D1.tolist(), room_D.tolist()
    for d in np.flatnonzero(here_D).tolist():
        low, high = begin[d : d + 2]
        found = fill_blocks(sizes[low:high], room[d])
        first += [low + start for start, _ in found]
        blocks_D[d] = len(found)
        owner += [d] * len(found)
    first_N1 = np.array([*first, len(sentence_S4)], np.int64)
    owner_N = np.array(owner, np.int64)
    arrays, kinds, taggers = _blocks(body, sentence_S4, first_N1, placed_P6, labels, finders)
    heldout_D = np.array([_held_out(document, config.holdout) for document, _ in documents], bool)
    arrays |= {
        "document": (np.cumsum(here_D) - 1)[owner_N].astype("<i4"),
        "length": (arrays["token_count"] + 3 + title_size_D[owner_N]).astype("<i4"),
        "heldout": heldout_D[owner_N],
        "blocks": blocks_D[here_D],
    }
    arrays |= _documents(documents, title, title_size_D, here_D)
    arrays["digest"] = _digests(documents, owner, arrays["text"], arrays["text_count"])
    counts["documents"] += int(here_D.sum())
    counts["titles_cut"] += int((np.diff(title.token_D1) > title_size_D)[here_D].sum())
    counts["heldout_documents"] += int((heldout_D & here_D).sum())
    counts["heldout_blocks"] += int(arrays["heldout"].sum())
    counts["tokens"] += len(arrays["token"])
    counts["unknown_wordpieces"] += int((arrays["token"] == encoder.tokenizer.unk).sum())
    counts["sentences"] += len(sentence_S4)
    counts["sentences_too_short"] += int((size_S < config.min_sentence_tokens).sum())
    counts["sentences_with_span"] += len(np.unique(placed_P6[:, 0]))
    counts["spans"] += len(placed_P6)
    return Part(arrays, kinds, taggers, dict(counts), dict(skips), int((~here_D).sum()))


def _held_out(document: Document, share: float) -> bool:
    return document.heldout or share > 0 and grouping.is_held_out(document.id, share)


def _spans(
    documents: Sequence, body: Encoded, sentence_D1: np.ndarray, skips: Counter
) -> tuple[Spans, list[str], list[str]]:
    """All spans of documents that have a sentence: those given, then the dates of the finder. Their label is the number
    of a pair: the label's name and the tagger's.

    Dates that were given are left out and counted ("date of another finder"): a tagger's are also "today", "two weeks"
    and "the age of nine", which no block can be asked for, and corpora of different taggers should have the same.
    """
    given: list[RawSpan] = []
    dates: list[tuple[int, int]] = []
    given_D, dates_D = np.zeros(len(documents), np.int64), np.zeros(len(documents), np.int64)
    date_D1 = np.searchsorted(body.date_C, body.character_D1).tolist()
    date_C = body.date_C.tolist()
    here_D = (np.diff(sentence_D1) > 0).tolist()
    for d, ((document, own), begin) in enumerate(zip(documents, body.character_D1.tolist(), strict=False)):
        if not here_D[d]:
            skips["no wordpieces"] += len(own)
            continue
        kept = [one for one in own if one[2] != DATE]
        if len(kept) < len(own):
            skips["date of another finder"] += len(own) - len(kept)
        given += kept
        given_D[d] = len(kept)
        places = date_C[date_D1[d] : date_D1[d + 1]]
        if places:
            found = find_dates(document.text, [at - begin for at in places])
            dates += found
            dates_D[d] = len(found)
    pairs = [one[2:] for one in given] + [(DATE, DATES)] * len(dates)
    number = {pair: n for n, pair in enumerate(dict.fromkeys(pairs))}
    labels, finders = [pair[0] for pair in number], [pair[1] if pair[1:] else FILE for pair in number]
    label_P = np.array([*map(number.__getitem__, pairs)], np.int64)
    document_P = np.concatenate([np.repeat(np.arange(len(documents)), count_D) for count_D in (given_D, dates_D)])
    finder_P = np.arange(len(document_P)) >= len(given)
    start_P = _offsets([one[0] for one in given] + [start for start, _ in dates])
    end_P = _offsets([one[1] for one in given] + [end for _, end in dates])
    order_P = np.argsort(document_P, kind="stable")  # of each document those given, then its dates
    columns = (column_P[order_P] for column_P in (document_P, start_P, end_P, label_P, finder_P))
    return Spans(*columns), labels, finders


def _offsets(values: list[int]) -> np.ndarray:
    try:
        return np.array(values, np.int64)
    except OverflowError:  # an offset that no array holds is outside any text
        return np.array([max(min(one, FAR), -1) for one in values], np.int64)


def _blocks(
    body: Encoded,
    sentence_S4: np.ndarray,
    first_N1: np.ndarray,
    placed_P6: np.ndarray,
    labels: list[str],
    finders: list[str],
) -> tuple[dict[str, np.ndarray], list[str], list[str]]:
    """The flat columns of the blocks in their own coordinates, and kinds and taggers of spans in order of first use."""
    first_N, last_N = first_N1[:-1], first_N1[1:] - 1
    token_N, character_N = sentence_S4[first_N, 0], sentence_S4[first_N, 2]
    texts = [
        body.text[a:b].encode() for a, b in zip(character_N.tolist(), sentence_S4[last_N, 3].tolist(), strict=True)
    ]
    block_S = np.repeat(np.arange(len(first_N)), np.diff(first_N1))
    origin_S4 = np.stack([token_N, token_N, character_N, character_N], axis=1)[block_S]
    block_P = block_S[placed_P6[:, 0]]
    kind, kinds = _named_by_first_use(placed_P6[:, 5], labels)
    tagger, taggers = _named_by_first_use(placed_P6[:, 5], finders)
    origin_P6 = np.stack(
        [first_N[block_P], *[token_N[block_P]] * 2, *[character_N[block_P]] * 2, np.zeros_like(block_P)], axis=1
    )
    span_P6 = np.concatenate([placed_P6[:, :5], kind[:, None]], axis=1) - origin_P6
    inside_T1 = np.zeros(len(body.id_T) + 1, np.int64)  # a block holds every wordpiece from its first to its last
    np.add.at(inside_T1, token_N, 1)
    np.add.at(inside_T1, sentence_S4[last_N, 1], -1)
    arrays = {
        "token": body.id_T[np.cumsum(inside_T1[:-1]) > 0].astype("<i4"),
        "token_count": sentence_S4[last_N, 1] - token_N,
        "sentence": (sentence_S4 - origin_S4).astype("<i4"),
        "sentence_count": np.diff(first_N1),
        "span": span_P6.astype("<i4"),
        "span_count": np.bincount(block_P, minlength=len(first_N)),
        "tagger": tagger.astype("<i4"),
        "text": np.frombuffer(b"".join(texts), np.uint8),
        "text_count": np.array([len(one) for one in texts], np.int64),
    }
    return arrays, kinds, taggers


def _named_by_first_use(pair_P: np.ndarray, names: list[str]) -> tuple[np.ndarray, list[str]]:
    """The names of pairs, each name once in order of first use, and their numbers [P]."""
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    which_P = np.array([number[name] for name in names], np.int64)[pair_P] if names else pair_P
    rank_P, used = by_first_use(which_P)
    known = list(number)
    return rank_P, [known[place] for place in used]


def by_first_use(label_P: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Numbers 0, 1, 2, ... in the order in which values first occur, and the values."""
    value_K, first_K, which_P = np.unique(label_P, return_index=True, return_inverse=True)
    order_K = np.argsort(first_K)
    rank_K = np.empty(len(order_K), np.int64)
    rank_K[order_K] = np.arange(len(order_K))
    return rank_K[which_P], value_K[order_K].tolist()


def _documents(documents: Sequence, title: Encoded, size_D: np.ndarray, here_D: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of those documents that have a block."""
    kept = [documents[d][0] for d in np.flatnonzero(here_D).tolist()]
    arrays: dict[str, np.ndarray] = {}
    for name, values in (("title", [one.title for one in kept]), ("document_id", [one.id for one in kept])):
        raw = [value.encode() for value in values]
        arrays[name] = np.frombuffer(b"".join(raw), np.uint8)
        arrays[f"{name}_count"] = np.array([len(one) for one in raw], np.int64)
    owner_T = np.repeat(np.arange(len(documents)), np.diff(title.token_D1))
    ordinal_T = np.arange(len(owner_T)) - title.token_D1[owner_T]
    arrays["title_token"] = title.id_T[(ordinal_T < size_D[owner_T]) & here_D[owner_T]].astype("<i4")
    arrays["title_token_count"] = size_D[here_D]
    arrays["id_hash"] = np.array([grouping.id_hash(one.id) for one in kept], np.uint64)
    return arrays


def _digests(documents: Sequence, owner: list[int], text: np.ndarray, count_N: np.ndarray) -> np.ndarray:
    raw, ends = text.tobytes(), np.cumsum(count_N).tolist()
    digests = [
        grouping.block_digest(documents[d][0].title.encode(), raw[start:end])
        for d, start, end in zip(owner, [0, *ends[:-1]], ends, strict=False)
    ]
    return np.frombuffer(b"".join(digests), np.uint8)
