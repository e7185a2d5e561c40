"""Habits of the house that a machine can check: file length, traces of one machine, ruff, and tests as packages."""

import subprocess
import sys
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


def test_every_folder_of_tests_is_a_package():
    # Beside packages, pytest imports a file of a bare folder by its name alone, and only once it has come to that
    # folder: who imports a helper from elsewhere would then depend on the order of collection.
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert len(folders) > 5
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]
