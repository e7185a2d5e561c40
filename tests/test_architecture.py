"""The law of imports: the contracts in setup.cfg hold, each of them can fail, and importing a room stays light."""

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("realm", "index_refresh", "experiments")
DOORS_ONLY = (
    "bm25s",
    "matplotlib",
    "mwparserfromhell",
    "orbax",
    "ray",
    "scann",
    "spacy",
    "tensorboardX",
    "tensorflow",
    "tensorflow_datasets",
    "torch",
    "transformers",
    "tyro",
)
# For each contract of setup.cfg one file that breaks it.
PLANTS = {
    "levels": ("index_refresh/planted.py", "import experiments"),
    "realm": ("realm/planted_room/__init__.py", ""),
    "text-without-jax": ("realm/text/planted.py", "def late():\n    import jax"),
    "models-without-text": ("realm/index/planted.py", "import realm.text.corpus"),
    "variants-by-protocol": ("realm/evaluation/planted.py", "from realm.objectives import marginal"),
    "refresh-without-training": ("index_refresh/planted_too.py", "from realm.training import loop"),
    "door-scann": ("realm/index/planted_scann.py", "import scann"),
    "door-orbax": ("index_refresh/planted_orbax.py", "import orbax.checkpoint"),
    "door-tensorboardx": ("realm/training/planted.py", "from tensorboardX import SummaryWriter"),
    "door-bm25s": ("experiments/planted_bm25s.py", "import bm25s"),
    "door-tensorflow-datasets": ("realm/text/planted_tfds.py", "import tensorflow_datasets"),
    "door-mwparserfromhell": ("realm/text/planted_wiki.py", "import mwparserfromhell"),
    "door-matplotlib": ("realm/training/planted_plot.py", "import matplotlib.pyplot"),
    "door-ray": ("experiments/planted_ray.py", "import ray"),
    "door-grain": ("realm/training/planted_grain.py", "import grain"),
    "door-torch": ("experiments/planted_torch.py", "def late():\n    import torch"),
    "door-spacy": ("realm/text/planted_spacy.py", "def late():\n    import spacy"),
    "door-tyro": ("experiments/planted_tyro.py", "import tyro"),
    "nowhere": ("experiments/planted.py", "import transformers"),
}


def contract_names() -> dict[str, str]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    prefix = "importlinter:contract:"
    return {name.removeprefix(prefix): setup[name]["name"] for name in setup.sections() if name.startswith(prefix)}


def lint_imports(tree: Path) -> tuple[int, str]:
    """import-linter over the packages in `tree`: exit status and everything it printed."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"
    # Wide enough that no contract's name is broken over two lines.
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env={**os.environ, "COLUMNS": "250"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_contracts_hold():
    status, said = lint_imports(ROOT)
    assert status == 0 and f"{len(contract_names())} kept, 0 broken" in said, said


def test_each_contract_can_fail(tmp_path):
    assert set(PLANTS) == set(contract_names()), "a contract without a plant has never been seen to fail"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("data", "__pycache__"))
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    for path, code in PLANTS.values():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(code + "\n")
    status, said = lint_imports(tmp_path)
    unbroken = [name for key, name in contract_names().items() if f"{name} BROKEN" not in said]
    assert status == 1 and not unbroken, said


def in_a_fresh_python(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_realm_loads_nothing_else():
    code = """
import sys
before = set(sys.modules)
import realm
print(*(set(sys.modules) - before))
"""
    assert in_a_fresh_python(code) == ["realm"]


@pytest.mark.parametrize(
    "room", ["realm.text", "realm.models", "realm.index", "realm.objectives", "realm.evaluation", "index_refresh"]
)
def test_importing_a_whole_room_opens_no_door(room):
    """Every module of the room, config dataclasses of heavy index kinds included; imports inside functions are late."""
    code = f"""
import importlib, pkgutil, sys
room = importlib.import_module("{room}")
names = [module.name for module in pkgutil.walk_packages(room.__path__, "{room}.")]
for name in names:
    importlib.import_module(name)
assert names, "the room is empty"
print(*set({DOORS_ONLY!r}) & set(sys.modules))
"""
    assert in_a_fresh_python(code) == []
