"""Habits of the house that a machine can check: file length, traces of one machine, ruff, and distinct test names."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("realm", "index_refresh", "experiments")
LINES = 300
# A longer file is listed here with the reason why it is one thing.
LONG: dict[str, str] = {}
# Spelled in halves, so that this file passes its own test.
TRACES = tuple(
    "".join(halves) for halves in (("/wo", "rk/"), ("shared", "/data"), ("shared", "/models"), ("iss", "ue #"))
)
TEXT = {"", ".cfg", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yml"}


def text_files() -> list[Path]:
    """The text files of the project: those at the top and in its folders, not what tools leave behind."""
    inside = [path for folder in (*PACKAGES, "tests", ".ci") for path in (ROOT / folder).rglob("*")]
    ours = [path for path in (*ROOT.iterdir(), *inside) if path.is_file() and path.suffix in TEXT]
    return [path for path in ours if "__pycache__" not in path.parts]


def test_no_file_is_long_without_a_reason():
    length = {
        path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines())
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    long = {name: lines for name, lines in length.items() if lines > LINES}
    assert long.keys() == LONG.keys(), f"over {LINES} lines: {long}; listed with a reason: {LONG}"
    assert all(LONG.values())


def test_nothing_names_a_machine_or_a_tracker():
    files = text_files()
    assert {"setup.cfg", "README.md", "Makefile", "run", "protocols.py"} <= {path.name for path in files}
    found = {
        path.relative_to(ROOT).as_posix(): trace
        for path in files
        for trace in TRACES
        if trace in path.read_text("utf-8").lower()
    }
    assert not found


def test_ruff_finds_nothing():
    for check in (["check", "."], ["format", "--check", "."]):
        done = subprocess.run([sys.executable, "-m", "ruff", *check], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_test_file_has_a_name_of_its_own():
    # pytest imports the files of a folder without __init__.py by their bare names: two of the same name collide.
    bare = [path for path in (ROOT / "tests").rglob("*.py") if not (path.parent / "__init__.py").exists()]
    names = Counter(path.name for path in bare if path.name != "conftest.py")
    assert not [name for name, count in names.items() if count > 1]


def test_the_licence_is_the_one_that_setup_names():
    first = (ROOT / "LICENSE").read_text("utf-8").split()
    assert first[:4] == ["Apache", "License", "Version", "2.0,"] and "license = Apache-2.0" in (
        ROOT / "setup.cfg"
    ).read_text("utf-8")
