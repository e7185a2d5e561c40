"""The ages of a run's index: exact at every step, adoptions and blocked seconds told."""

import json

import pytest

from experiments.ages import AgesError, read_ages
from experiments.cli import main


def write_run(folder, published, adopted, steps=10, every=2, ahead=0):
    """A stage's logs as training writes them; adopted: (step, generation, step made of). ahead: as `retrieve_ahead`."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"config": {"training": {"retrieve_ahead": ahead}}}))
    events = [{"event": "published", "generation": n, "step": s, **more} for n, s, more in published]
    events += [{"event": "adopted", "step": at, "generation": n, "generation_step": s} for at, n, s in adopted]
    (folder / "generations.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    records = [{"step": 0, "event": "swap", "generation": 0}]
    for step in range(every, steps + 1, every):
        used = [one for place, one in enumerate(adopted) if one[0] + (ahead if place else 0) <= step - 1]
        _, number, made = used[-1]
        age = {"generation": number, "document_age": step - 1 - made, "document_age_seconds": float(step)}
        waits = {"refresh_blocked_seconds": 0.25, "refresh_boundary_seconds": 1.5, "first_index_seconds": 3.0}
        records.append({"step": step, **age, **waits})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.mark.parametrize("ahead", [0, 1])
def test_age_is_known_at_every_step_not_only_where_it_was_logged(tmp_path, ahead):
    folder = write_run(tmp_path / "realm", [(0, 0, {}), (1, 3, {})], [(0, 0, 0), (5, 1, 3)], ahead=ahead)
    ages = read_ages(folder)
    assert ages.age_S.tolist() == ([0, 1, 2, 3, 4, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 3, 4, 5, 6])[ahead]
    assert ages.oldest_S.tolist() == ages.age_S.tolist()
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    logged = {r["step"] - 1: r["document_age"] for r in records if "event" not in r}
    assert all(ages.age_S[step] == age for step, age in logged.items())
    assert ages.summary()["age_max"] == 6 and ages.summary()["blocked_seconds"] == 0.25
    assert "blocked for 0.250 s" in ages.line() and "oldest" not in ages.line()


def test_documents_of_a_rolling_index_have_three_ages(tmp_path):
    published = [(0, 0, {"documents": [[9, 0]]}), (1, 4, {"documents": [[6, 0], [3, 4]]})]
    ages = read_ages(write_run(tmp_path / "realm", published, [(0, 0, 0), (4, 1, 4)]))
    assert (ages.age_S[5], ages.mean_S[5], ages.oldest_S[5]) == (1, pytest.approx((6 * 5 + 3 * 1) / 9, abs=0.01), 5)
    assert "oldest document at most 9 steps" in ages.line()


def test_the_verb_draws_a_picture_of_a_stage_or_of_the_job_it_is_in(tmp_path, capsys):
    folder = write_run(tmp_path / "realm", [(0, 0, {}), (1, 3, {})], [(0, 0, 0), (5, 1, 3)])
    (tmp_path / "preset.json").write_text("{}")
    png, answer = tmp_path / "ages.png", tmp_path / "ages.json"
    for run in (folder, tmp_path):
        assert main(["figure", str(run), "--what", "ages", "--png", str(png), "--json", str(answer)]) == 0
        assert png.read_bytes()[:4] == b"\x89PNG"
        png.unlink()
    assert json.loads(answer.read_text())["generations"] == 2
    assert "2 generations" in capsys.readouterr().out


def test_a_sweep_is_not_mistaken_for_a_folder_of_its_name(tmp_path, monkeypatch, capsys):
    (tmp_path / "facts-controls").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["figure", "facts-controls"]) == 1 and "no results of" in capsys.readouterr().err
    assert main(["figure", "facts-controls", "--what=ages"]) == 1
    assert "0 logged steps with an index" in capsys.readouterr().err


def test_a_run_without_an_index_is_refused(tmp_path, capsys):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    with pytest.raises(AgesError, match="0 logged steps with an index and 0 adoptions"):
        read_ages(tmp_path)
    assert main(["figure", str(tmp_path / "nothing"), "--what", "ages"]) == 2
    assert main(["figure", "nonsense"]) == 2
    assert "no sweep 'nonsense'" in capsys.readouterr().err
