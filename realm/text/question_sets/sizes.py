"""Published sizes of question sets, and what they say about a file.

A released ORQA model was once reported at half its score because it had been run on the WebQuestions file. Sizes are
public and nearly all different, so a wrong file shows at once. Splits named `orqa-*` are those of Lee et al. 2019,
used by REALM and DPR too (DPR, table 1); the others are the makers' own.
"""

from __future__ import annotations

SIZES: dict[str, dict[str, int]] = {
    "nq-open": {
        "train": 87_925,
        "dev": 3_610,
        "orqa-train": 79_168,
        "orqa-dev": 8_757,
        "orqa-test": 3_610,
        "efficientqa-dev": 1_800,
        "efficientqa-test": 1_769,
    },
    "webquestions": {
        "train": 3_778,
        "test": 2_032,
        "orqa-train": 3_417,
        "orqa-dev": 361,
        "yodaqa-trainmodel": 2_834,
        "yodaqa-val": 755,
        "yodaqa-devtest": 189,
    },
    "curatedtrec": {
        "train": 1_486,
        "test": 694,
        "orqa-train": 1_353,
        "orqa-dev": 133,
        "yodaqa-train": 430,
        "yodaqa-test": 430,
        "yodaqa-large2470-train": 1_704,
        "yodaqa-large2470-test": 766,
    },
    "triviaqa": {
        "unfiltered-train": 87_622,
        "unfiltered-dev": 11_313,
        "unfiltered-test": 10_832,
        "orqa-train": 78_785,
        "orqa-dev": 8_837,
        "orqa-test": 11_313,
        "web-train": 76_496,
        "web-dev": 9_951,
        "web-test": 9_509,
        "wikipedia-train": 61_888,
        "wikipedia-dev": 7_993,
        "wikipedia-test": 7_701,
    },
    "squad": {"train": 87_599, "dev": 10_570, "orqa-train": 78_713, "orqa-dev": 8_886, "orqa-test": 10_570},
    "entityquestions": {"train": 176_560, "dev": 22_068, "test": 22_075},
    "popqa": {"all": 14_267, "longtail": 1_399},
    "qed": {"train": 7_638, "dev": 1_355},
}


def matches(rows: int) -> list[tuple[str, str]]:
    """(dataset, split) of every published set with so many questions."""
    return [(name, split) for name, splits in SIZES.items() for split, size in splits.items() if size == rows]


def splits_of(dataset: str, rows: int, split: str | None = None) -> list[str]:
    """The splits of `dataset` with so many questions; with `split`, only those it may mean: "test" is "orqa-test"."""
    fitting = [name for name, size in SIZES.get(dataset, {}).items() if size == rows]
    return fitting if split is None else [name for name in fitting if _is(name, split)]


def size_warnings(rows: int, dataset: str, split: str | None = None) -> list[str]:
    """Why a file of `rows` questions may not be the set it is taken for; [] when its size is a published one."""
    if dataset not in SIZES:
        known = ", ".join(SIZES)
        return [f"no published sizes are known for {dataset!r}, only for {known}: {rows:,} questions were not checked"]
    if splits_of(dataset, rows, split):
        return []
    asked = f"{dataset} {split}" if split else dataset
    known = {name: size for name, size in SIZES[dataset].items() if split is None or _is(name, split)}
    if not known:
        return [f"{dataset} has no split {split!r}: wanted one of {', '.join(SIZES[dataset])}"]
    sizes = ", ".join(f"{name} {size:,}" for name, size in known.items())
    others = [f"{name} {part}" for name, part in matches(rows)]
    other = f"; it is that of {' or '.join(others)}" if others else ""
    return [f"{rows:,} questions is no published size of {asked} ({sizes}){other}"]


def _is(name: str, split: str) -> bool:
    return name == split or name.endswith(f"-{split}")
