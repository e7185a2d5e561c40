"""Where dumps lie: in the folder of a job's last stage with a retriever, or where --dumps says; one file a row.

Imports nothing heavy, because two dumps are compared without a model.
"""

from __future__ import annotations

from pathlib import Path

from experiments.arguments import UsageError

RETRIEVERS = ("open_qa", "realm", "ict_continued", "ict")  # stages that train one, the last first
READER = "open_qa"


def recall_file(row: str) -> str:
    """The file of a retriever's ranks."""
    return f"recall-{row.replace(' ', '-')}.jsonl"


def answers_file(row: str) -> str:
    """The file of a reader's answers."""
    return f"answers-{row.replace(' + ', '-')}.jsonl"


def dump_of(path: Path, field: str) -> Path:
    """The dump that has `field`: `path` itself where it is a file, else that of a stage's own row, or of the last stage
    of a job; of answers, the run's own reader's. Raises UsageError where there is none."""
    if path.is_file():
        return path
    if "@" not in field:
        places = [folder / answers_file(READER) for folder in (path, path / READER)]
        wanted = f"a dump of answers, or a fine-tuned run with {answers_file(READER)}"
    else:
        stage = path.resolve().name
        rows = (stage,) if stage in RETRIEVERS else RETRIEVERS
        # The row of a stage lies in the folder of the last one: beside it, or below the job.
        folders = (path, *((path.parent if stage in RETRIEVERS else path) / one for one in RETRIEVERS))
        places = [folder / recall_file(row) for row in rows for folder in folders]
        wanted = "a dump recall-*.jsonl, or a run that has them: `realm evaluate RUN --dumps DIR` writes them"
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UsageError(f"{path}: found no dump with {field}, wanted {wanted}")
    return found
