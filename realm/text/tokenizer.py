"""WordPiece with character offsets: BERT's lower-casing tokenizer, from a vocabulary file or trained on a corpus.

The work is done by the `tokenizers` library; this module fixes the pipeline (clean, split CJK, strip accents, lower
case, split at blanks and punctuation) and hands out numpy arrays. Offsets count characters of the string as it was
given, so that a span found in the raw text lands on the right wordpieces. No text can produce a special token: a
literal "[MASK]" in a document is three pieces. WordPiece: Wu et al. 2016 (arXiv 1609.08144); BERT: arXiv 1810.04805.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

EMBEDDED = Path(__file__).parent / "data" / "bert-base-uncased-vocab.txt"
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUES = "##"
ALPHABET = 1000  # characters kept when a vocabulary is trained; rarer ones become [UNK]


class VocabularyError(ValueError):
    """A vocabulary that cannot drive the tokenizer."""


class Encoding(NamedTuple):
    """The wordpieces of one text: all four arrays int32 of length T.

    id_T: vocabulary ids; start_T, end_T: character offsets into the text as given; word_T: 0, 1, 2, ..., the pieces
    of one word share it. Pieces of one composed character (Hangul) share their offsets; a stripped accent lies
    between the end of its piece and the start of the next.
    """

    id_T: np.ndarray
    start_T: np.ndarray
    end_T: np.ndarray
    word_T: np.ndarray


class Tokenizer:
    """A WordPiece tokenizer over `pieces`, a vocabulary in id order. Pickles by its vocabulary."""

    def __init__(self, pieces: Sequence[str]):
        self._pieces = tuple(pieces)
        ids = {piece: number for number, piece in enumerate(self._pieces)}
        missing = [special for special in SPECIALS if special not in ids]
        if missing:
            raise VocabularyError(
                f"found a vocabulary of {len(ids)} pieces without {missing}, wanted all of {SPECIALS}"
            )
        if len(ids) < len(self._pieces):
            twice = next(piece for number, piece in enumerate(self._pieces) if ids[piece] != number)
            raise VocabularyError(f"found the piece {twice!r} twice in the vocabulary, wanted every piece once")
        model = models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100)
        self._rust, self._plain = _pipeline(model), tokenizers.Tokenizer(model)
        self._plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        self.size = len(self._pieces)
        self.pad, self.unk, self.cls, self.sep, self.mask = (ids[special] for special in SPECIALS)
        self.fingerprint = hashlib.sha256("\n".join(self._pieces).encode()).hexdigest()
        # A piece that carries on the word before it. Words never hold "#" beside other characters (punctuation is
        # split off), so "##" at the front of a piece is an exact sign.
        self.continues_V = np.array([piece.startswith(CONTINUES) and piece != CONTINUES for piece in self._pieces])

    @classmethod
    def load(cls, path: str | Path | None = None) -> Tokenizer:
        """The tokenizer of a vocabulary file, one piece a line; None is BERT's uncased one, which the package brings.

        Raises VocabularyError when the file is missing, not UTF-8, has an empty line, repeats a piece or lacks a
        special token.
        """
        path = Path(path) if path is not None else EMBEDDED
        try:
            lines = path.read_bytes().decode("utf-8").split("\n")
        except OSError as error:
            raise VocabularyError(f"{path}: found no readable file ({error.strerror}), wanted a vocabulary") from error
        except UnicodeDecodeError as error:
            raise VocabularyError(f"{path}: found bytes that are not UTF-8 at {error.start}, wanted UTF-8") from error
        pieces = [line.rstrip("\r") for line in lines]
        if pieces[-1] == "":
            pieces.pop()
        if "" in pieces:
            raise VocabularyError(f"{path}:{pieces.index('') + 1}: found an empty line, wanted one piece a line")
        try:
            return _shared(tuple(pieces))
        except VocabularyError as error:
            raise VocabularyError(f"{path}: {error}") from error

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Tokenizer:
        """A new vocabulary of at most `size` pieces, learned from `texts` (held in memory). Same texts, same result.

        Raises VocabularyError when the characters of the texts alone do not fit into `size`.
        """
        normalizer = _normalizer()
        plain = [normalizer.normalize_str(text) for text in texts]
        seen = Counter(chain.from_iterable(plain))
        common = sorted((c for c in seen if not c.isspace()), key=lambda c: (-seen[c], c))
        alphabet = sorted(common[:ALPHABET])
        rare = str.maketrans(dict.fromkeys(common[ALPHABET:], " "))
        # The library numbers "##" characters in hash order, which differs from run to run and decides ties between
        # merges. Naming the whole alphabet up front takes chance out.
        first = [*SPECIALS, *alphabet, *(CONTINUES + c for c in alphabet)]
        if len(first) > size:
            raise VocabularyError(
                f"found {len(alphabet)} different characters, which take {len(first)} pieces, wanted a vocabulary of "
                f"{size}: ask for a larger size"
            )
        trainee = _pipeline(models.WordPiece(unk_token="[UNK]"))
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=first, show_progress=False)
        trainee.train_from_iterator((text.translate(rare) for text in plain), trainer)
        ids = trainee.get_vocab(with_added_tokens=True)
        return cls(sorted(ids, key=ids.__getitem__))

    def encode(self, text: str) -> Encoding:
        """The wordpieces of `text`, no special tokens added."""
        return self._arrays(self._rust.encode(text, add_special_tokens=False))

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """`encode` of many texts at once, on all cores."""
        return [self._arrays(found) for found in self._rust.encode_batch(list(texts), add_special_tokens=False)]

    def encode_plain_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """`encode_batch`, in half the time, of texts of ASCII letters, digits and blanks: nothing has to be cleaned."""
        texts = [text.lower() for text in texts]
        return [self._arrays(found) for found in self._plain.encode_batch(texts, add_special_tokens=False)]

    def _arrays(self, found: tokenizers.Encoding) -> Encoding:
        id_T = np.array(found.ids, np.int32)
        offset_T2 = np.fromiter(chain.from_iterable(found.offsets), np.int32, 2 * len(id_T)).reshape(-1, 2)
        return Encoding(id_T, offset_T2[:, 0].copy(), offset_T2[:, 1].copy(), self.words(id_T))

    def words(self, id_T: np.ndarray) -> np.ndarray:
        """The word index of each wordpiece, int32, from the ids alone; counts from 0 at the first piece."""
        if len(id_T) == 0:
            return np.zeros(0, np.int32)
        new_T = ~self.continues_V[id_T]
        return np.cumsum(new_T, dtype=np.int32) - np.int32(new_T[0])

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text of wordpiece ids, special tokens included; blanks are not always where they were."""
        return self._rust.decode([int(number) for number in ids], skip_special_tokens=False)

    def piece(self, number: int) -> str:
        """The wordpiece with this id. Raises IndexError outside 0 .. size-1."""
        if not 0 <= number < self.size:
            raise IndexError(f"found wordpiece id {number}, wanted 0 to {self.size - 1}")
        return self._pieces[number]

    def save(self, path: str | Path) -> None:
        """Writes the vocabulary, one piece a line, as `load` reads it."""
        Path(path).write_bytes(("\n".join(self._pieces) + "\n").encode())

    def __reduce__(self):
        return Tokenizer, (self._pieces,)

    def __repr__(self) -> str:
        return f"Tokenizer({self.size} pieces, {self.fingerprint[:12]})"


@lru_cache(maxsize=2)
def _shared(pieces: tuple[str, ...]) -> Tokenizer:
    """One tokenizer of a vocabulary, however often it is loaded: making one takes a while."""
    return Tokenizer(pieces)


def _normalizer() -> normalizers.BertNormalizer:
    return normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True)


def _pipeline(model: models.WordPiece) -> tokenizers.Tokenizer:
    rust = tokenizers.Tokenizer(model)
    rust.normalizer = _normalizer()
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece(prefix=CONTINUES)
    return rust
