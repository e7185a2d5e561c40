"""Per-question dumps of retrievers: ranks come back, and recall of two of them is compared question by question."""

import json

import numpy as np
import pytest

from realm.evaluation.bootstrap import compare
from realm.evaluation.dump import DumpError, compare_dumps, read_dump, write_dump, write_recall
from realm.evaluation.recall import Ranks
from realm.evaluation.scores import score
from realm.text.questions import Question

QUESTIONS = [Question(f"q{n}", f"who is {n}?", ("Ada",), f"d{n}") for n in range(5)]
SET = dict(dataset="squad", split="dev", fingerprint="f" * 64)


def dumped(path, gold, answer=(1, 0, 0, 0, 0), counted=(1, 1, 1, 1, 0), retrieved=20, corpus="c"):
    """ranks: 0 where none was retrieved."""
    gold_Q, answer_Q = (np.array(rank, np.int64) for rank in (gold, answer))
    ranks = Ranks(gold_Q, np.array(counted, bool), retrieved), Ranks(answer_Q, np.ones(5, bool), retrieved)
    extra = {q.id: {"article": "A" if n < 2 else q.id} for n, q in enumerate(QUESTIONS)}
    write_recall(path, QUESTIONS, *ranks, **SET, header={"row": "ict", "corpus": corpus, "k": 100}, extra=extra)
    return read_dump(path)


def test_ranks_come_back_and_give_recall_at_any_k_that_was_retrieved(tmp_path):
    dump = dumped(tmp_path / "a.jsonl", (1, 5, 0, 20, 0))
    assert dump.header == {
        "questions": 5,
        "mode": "recall",
        **SET,
        "retrieved": 20,
        "row": "ict",
        "corpus": "c",
        "k": 100,
    }
    assert dump.records[2] == {
        **{"id": "q2", "question": "who is 2?", "answers": ["Ada"], "kind": "text"},
        **{"gold": True, "gold_rank": None, "answer_rank": None, "article": "q2"},
    }
    for k, hits in ((1, [1, 0, 0, 0]), (5, [1, 1, 0, 0]), (20, [1, 1, 0, 1])):
        assert dump.values(f"gold@{k}")[:4].tolist() == hits
    assert np.isnan(dump.values("gold@1")[4]) and dump.values("answer@1").tolist() == [1, 0, 0, 0, 0]
    for name, message in (("gold@21", "at most the 20 blocks"), ("em", "wanted gold@K"), ("gold@0", "wanted gold@K")):
        with pytest.raises(DumpError, match=message):
            dump.values(name)


def test_recall_of_two_retrievers_is_compared_over_questions_with_a_gold_block(tmp_path):
    before, after = dumped(tmp_path / "a", (1, 0, 0, 9, 0)), dumped(tmp_path / "b", (6, 2, 3, 1, 0))
    found = compare_dumps(before, after, "gold@5", group="article")
    assert found == compare([1, 0, 0, 0], [0, 1, 1, 1], group_Q=["A", "A", "q2", "q3"])
    assert (found.better, found.worse, found.equal, found.difference.units) == (3, 1, 0, 3)
    assert compare_dumps(before, after, "answer@5").equal == 5


def test_what_is_no_pair_of_retrievers_over_one_corpus_is_not_compared(tmp_path):
    first = dumped(tmp_path / "a", (1, 0, 0, 9, 0))
    with pytest.raises(DumpError, match="found corpus 'c' and 'other', wanted .* and blocks"):
        compare_dumps(first, dumped(tmp_path / "b", (1, 0, 0, 9, 0), corpus="other"), "gold@1")
    with pytest.raises(DumpError, match="at most the 8 blocks"):
        compare_dumps(first, dumped(tmp_path / "c", (1, 0, 0, 8, 0), retrieved=8), "gold@20")
    nobody = dumped(tmp_path / "d", (0, 0, 0, 0, 0), counted=(0, 0, 0, 0, 0))
    with pytest.raises(DumpError, match="questions whose document is known"):
        compare_dumps(nobody, nobody, "gold@1")
    write_dump(tmp_path / "e", QUESTIONS, {}, score(QUESTIONS, {}, "orqa"), **SET)
    with pytest.raises(DumpError, match="found mode 'recall' and 'orqa'"):
        compare_dumps(first, read_dump(tmp_path / "e"), "gold@1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header, record: header.pop("retrieved"), "a:1: found None as retrieved"),
        (lambda header, record: record.pop("gold_rank"), "a:2: found no gold_rank"),
        (lambda header, record: record.update(gold_rank="1"), "the gold_rank '1' of 'q0'"),
        (lambda header, record: record.update(gold_rank=0), "the gold_rank 0 of 'q0'"),
    ],
)
def test_a_strange_dump_of_ranks_is_refused(tmp_path, change, message):
    dumped(tmp_path / "a", (1, 0, 0, 9, 0))
    lines = [json.loads(line) for line in (tmp_path / "a").read_text("utf-8").splitlines()]
    change(lines[0]["header"], lines[1])
    (tmp_path / "a").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with pytest.raises(DumpError, match=message):
        read_dump(tmp_path / "a").values("gold@1")


def test_ranks_of_other_questions_are_not_written(tmp_path):
    ranks = Ranks(np.zeros(4, np.int64), np.ones(4, bool), 5)
    with pytest.raises(DumpError, match="4 and 4 ranks for 5 questions"):
        write_recall(tmp_path / "a", QUESTIONS, ranks, ranks, **SET)
    assert not list(tmp_path.iterdir())
