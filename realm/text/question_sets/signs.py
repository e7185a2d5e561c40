"""What tells which published set a file holds, where its format does not: its ids, its name, its number of questions.

Ids are in the file, a name is only on it: ids of one set decide. Without them name and number must not contradict each
other. Where two sets would fit none is taken, and the doubt says what each sign tells.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from realm.text.formats.source import is_url, name_of
from realm.text.question_sets.datasets import PREFIX
from realm.text.question_sets.sizes import SIZES, matches

# How a set is written in the names of files and folders; SQuAD 2.0 and WebQuestionsSP are other sets.
_WRITTEN = {
    "nq-open": r"nq[-_ ]?open|natural[-_ ]?questions[-_ ]?open|efficient[-_ ]?qa",
    "webquestions": r"web[-_ ]?questions|webq",
    "curatedtrec": r"curated[-_ ]?trec",
    "triviaqa": r"trivia[-_ ]?qa",
    "squad": r"squad(?![-_ ]?v?2)",
    "entityquestions": r"entity[-_ ]?questions",
    "popqa": r"pop[-_ ]?qa",
    "qed": r"qed",
}
_NAMES = {name: re.compile(rf"(?<![a-z0-9])(?:{written})(?![a-z])") for name, written in _WRITTEN.items()}
# How makers write ids, and `read_question_set` those of a folder of relations, besides a set's own name in front.
_WRITTEN_IDS = {
    "squad": r"5[67][0-9a-f]{22}$",
    "webquestions": r"wq[rs]\d{6}$",
    "entityquestions": r"eq-(?:train|dev|test)-P\d+-|P\d+\.(?:train|dev|test)-row-\d+$",
}
_IDS = {name: re.compile("|".join(filter(None, (rf"{name}[-_:/.]", _WRITTEN_IDS.get(name))))) for name in SIZES}
# TriviaQA's ids begin with the quiz they are from. One quiz's two letters may be anybody's, those of several are not.
_QUIZ = re.compile(r"(bb|bt|dpql|jp|odql|qb|qf|qg|qw|qz|sfq|tb|tc|wh)_\d+$")
QUIZZES = 3


def told_set(path: str | Path, ids: Sequence[str], shown: str | None, *, own: bool) -> tuple[str | None, list[str]]:
    """(the set that a file of questions with these ids holds, doubts); None where nothing tells or signs disagree.

    shown: the set that the format comes in alone, if any. own: whether it is the project's own format, which holds
    anybody's questions: a number of them tells less than it does in a format of published sets.
    """
    names, sizes = by_name(path), {name for name, _ in matches(len(ids))}
    if told := shown or by_ids(ids):
        what = "format" if shown else "ids"
        return told, [f"the name says {_or(names)}, the {what} {told}"] if names and told not in names else []
    fitting = names & sizes if names and sizes else names | sizes
    if len(fitting) == 1:
        (told,) = fitting
        alone = own and not names
        return told, [f"taken for {told} by its number of questions alone: PATH#SET names another"] if alone else []
    said = [f"the name says {_or(names)}"] if names else []
    said += [f"{len(ids):,} questions is the size of {_or(sizes)}"] if sizes else []
    return None, [f"nothing tells the set for certain ({', '.join(said)}): PATH#SET names it"] if said else []


def by_ids(ids: Collection[str]) -> str | None:
    """The set whose ids all of these are."""
    for name, pattern in _IDS.items():
        if all(map(pattern.match, ids)):
            return name
    quizzes = {quiz and quiz[1] for quiz in map(_QUIZ.match, ids)}
    return "triviaqa" if None not in quizzes and len(quizzes) >= QUIZZES else None


def by_name(path: str | Path) -> set[str]:
    """The sets that a file's name tells or, where it tells none, its folder's."""
    whole = str(path)
    if not is_url(path) and not whole.startswith(PREFIX):
        whole = os.path.abspath(path)
    folder = whole.rstrip("/").rpartition("/")[0]
    return _named(name_of(whole)) or _named(name_of(folder))


def _named(text: str) -> set[str]:
    return {name for name, pattern in _NAMES.items() if pattern.search(text.lower())}


def _or(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))
