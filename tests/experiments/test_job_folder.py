"""The folder of a main job: whose it is, what `--overwrite` may delete, and how a stopped job ends."""

import dataclasses
import os
import signal

import pytest

from experiments.cli import main
from experiments.config import to_json
from experiments.pipeline import claim, locked, pretrain, stage_up_to_date
from experiments.presets import PRESETS
from realm.training.metrics import ProgressLine
from realm.training.run_folder import RunFolder, RunFolderError, write_json


class Claimed(Exception):
    """Raised where the job would begin its work; says what is in the folder then."""


def begin(preset, out):
    raise Claimed(sorted(p.name for p in out.iterdir()))


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job that was here before: its preset, a stage with a file, and a corpus that lies elsewhere."""
    monkeypatch.setattr("experiments.pipeline.open_corpus", begin)
    out = tmp_path / "job"
    (out / "mlm" / "checkpoints").mkdir(parents=True)
    (out / "mlm" / "checkpoints" / "weights").write_text("hours of work")
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "tokens").write_text("somebody's corpus")
    (out / "corpus").symlink_to(tmp_path / "built", target_is_directory=True)
    write_json(out / "preset.json", to_json(PRESETS["tiny"]()))
    return out


def listing(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.name != ".lock")


@pytest.mark.parametrize("existing", ["overwrite", "resume"])
def test_a_job_that_is_running_keeps_its_folder(job, existing):
    before = listing(job)
    with locked(job), pytest.raises(RunFolderError, match="in use"):
        pretrain(PRESETS["tiny"](), job, existing)
    assert listing(job) == before and (job / "mlm" / "checkpoints" / "weights").read_text() == "hours of work"
    assert [p.name for p in job.parent.iterdir() if p.name.startswith(".")] == []


def test_overwrite_deletes_the_job_and_holds_the_folder_all_the_while(job, monkeypatch):
    def second_job(preset, out):
        with pytest.raises(RunFolderError, match="in use"):
            pretrain(preset, out, "overwrite")
        begin(preset, out)

    monkeypatch.setattr("experiments.pipeline.open_corpus", second_job)
    with pytest.raises(Claimed, match=r"\['.lock'\]"):
        pretrain(PRESETS["tiny"](), job, "overwrite")
    assert (job.parent / "built" / "tokens").exists()  # the link went, not what it pointed to
    assert sorted(p.name for p in job.parent.iterdir()) == ["built", "job"]


@pytest.mark.parametrize("renamed", [0, 1, 2, 3])
def test_an_overwrite_that_was_killed_leaves_a_job_that_goes_on(job, monkeypatch, renamed):
    rename, done = os.rename, []

    def killed(*paths):
        if len(done) == renamed:
            raise KeyboardInterrupt
        done.append(rename(*paths))

    def killed_at_once(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.rename", killed)
        patch.setattr("shutil.rmtree", killed_at_once)
        with pytest.raises(KeyboardInterrupt):
            pretrain(PRESETS["tiny"](), job, "overwrite")
    assert len(done) == renamed and (job / "preset.json").exists() == (renamed < 3)
    # what is left of a stage is the whole of it
    assert not (job / "mlm").exists() or (job / "mlm" / "checkpoints" / "weights").exists()
    with pytest.raises(Claimed):
        pretrain(PRESETS["tiny"](), job, "resume")
    with pytest.raises(Claimed, match=r"\['.lock'\]"):
        pretrain(PRESETS["tiny"](), job, "overwrite")


def test_a_job_of_before_a_field_goes_on_and_a_changed_field_is_named(tmp_path):
    """`block_segments` came later; what was done without it is its default."""
    preset = PRESETS["tiny_open"]()
    known, stage = to_json(preset), to_json(preset.open_qa) | {"corpus": "c"}
    for config in (known["open_qa"], known["ict"], stage):
        del config["objective"]["retriever"]["block_segments"]
    write_json(tmp_path / "preset.json", known)
    claim(preset, tmp_path, "resume")
    retriever = dataclasses.replace(preset.open_qa.objective.retriever, block_segments=1)
    objective = dataclasses.replace(preset.open_qa.objective, retriever=retriever)
    one = dataclasses.replace(preset, open_qa=dataclasses.replace(preset.open_qa, objective=objective))
    with pytest.raises(RunFolderError, match=r"differs from this command in open_qa\.objective\.retriever\.block_seg"):
        claim(one, tmp_path, "resume")
    RunFolder(tmp_path / "open_qa", "refuse").write_config(stage)
    again = RunFolder(tmp_path / "open_qa", "resume")
    again.write_config(to_json(preset.open_qa) | {"corpus": "c"}, stage_up_to_date)
    with pytest.raises(RunFolderError, match="differs from this command in corpus"):
        again.write_config(to_json(preset.open_qa) | {"corpus": "d"}, stage_up_to_date)


@pytest.mark.parametrize("existing", ["refuse", "resume", "overwrite"])
def test_a_folder_that_is_no_job_is_left_as_it_is(tmp_path, existing):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunFolderError, match="left alone"):
        pretrain(PRESETS["tiny"](), tmp_path, existing)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


class StopAt(ProgressLine):
    """A progress line that sends the process a signal when it shows a text, as a scheduler would."""

    text, number = "", 0

    def __call__(self, said):
        super().__call__(said)
        if self.text in said:
            os.kill(os.getpid(), self.number)


def test_a_stopped_job_saves_and_ends_as_a_shell_expects(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("experiments.pipeline.ProgressLine", StopAt)
    command = ["pretrain", "tiny", "--out", str(tmp_path / "job"), "--corpus.limit", "60", "--max-questions", "20"]
    for text, number, code, more in (
        ("step 2/", signal.SIGTERM, 143, []),
        ("step 4/", signal.SIGINT, 130, ["--resume"]),
    ):
        monkeypatch.setattr(StopAt, "text", text)
        monkeypatch.setattr(StopAt, "number", number)
        with pytest.raises(SystemExit) as stopped:
            main([*command, *more])
        assert stopped.value.code == code
        assert f"stopped by {number.name}" in capsys.readouterr().err
    saved = [int(p.name) for p in (tmp_path / "job" / "mlm" / "checkpoints").iterdir() if p.name.isdigit()]
    assert max(saved) >= 4 and not (tmp_path / "job" / "ict").exists()


def test_a_kill_before_the_first_preset_was_whole_leaves_a_folder_that_can_be_used(job):
    (job / "preset.json").rename(job / "preset.json.partial")
    for child in ("checkpoints/weights", "checkpoints", ""):
        path = job / "mlm" / child
        path.unlink() if path.is_file() else path.rmdir()
    with pytest.raises(Claimed):
        pretrain(PRESETS["tiny"](), job, "refuse")
