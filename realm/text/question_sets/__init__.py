"""Public question sets in the formats they are given out in; one small file a format.

`read_question_set` (in `read`) is the door: it recognises the format by content, checks every record, and compares the
number of questions with the published sizes (in `sizes`), so that a file under the wrong name does not go unseen.
"""

from realm.text.question_sets.read import FORMATS, QuestionSet, read_question_set, training_warnings
from realm.text.question_sets.sizes import SIZES

__all__ = ["FORMATS", "SIZES", "QuestionSet", "read_question_set", "training_warnings"]
