"""A killed and resumed main job ends with the numbers of an uninterrupted one.

Runs `realm pretrain tiny` to its end; runs it again, kills it (SIGKILL, children included) as soon as the first
checkpoint of the realm stage is complete, resumes it; and compares the two summary.json, all but the fields that say
how long it took. Standard library only.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

# How long something took and where it lies are the only things two equal runs may differ in.
INCIDENTAL = re.compile(r"minutes|seconds|_s$|_ms$|per_second|time|path|folder|out$|argv|pid|host|resum", re.IGNORECASE)
PATIENCE_S = 900


def pretrain(realm: str, out: Path, *more: str) -> list[str]:
    return [realm, "pretrain", "tiny", "--out", str(out), *more]


def checkpoint(out: Path) -> Path | None:
    """A complete checkpoint of the realm stage: a folder named by its step. One being written has a longer name."""
    return next((path for path in sorted(out.glob("realm/checkpoints/*")) if path.name.isdigit()), None)


def kill_after_first_checkpoint(command: list[str], out: Path) -> Path:
    started = time.monotonic()
    # A session of its own, so that one signal reaches the job's children too.
    job = subprocess.Popen(command, start_new_session=True)
    try:
        while (found := checkpoint(out)) is None:
            if job.poll() is not None:
                sys.exit(f"the job ended with status {job.returncode} before a checkpoint in {out}/realm/checkpoints/")
            if time.monotonic() - started > PATIENCE_S:
                sys.exit(f"no checkpoint in {out}/realm/checkpoints/ after {PATIENCE_S} seconds")
            time.sleep(0.02)
    finally:
        ended = job.poll()
        if ended is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    if ended is not None or (out / "summary.json").exists():
        sys.exit("the job was over before it could be killed: nothing was checked. Give the tiny preset more steps")
    return found


def numbers(value: object, name: str = "") -> dict[str, object]:
    """Every leaf of a summary by its dotted name, without the incidental ones."""
    if isinstance(value, dict):
        parts = [(f"{name}.{key}" if name else key, one) for key, one in value.items() if not INCIDENTAL.search(key)]
    elif isinstance(value, list):
        parts = [(f"{name}[{at}]", one) for at, one in enumerate(value)]
    else:
        return {name: value}
    return {key: leaf for path, one in parts for key, leaf in numbers(one, path).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="an empty folder to run in")
    parser.add_argument("--realm", default="realm", help="the command to run")
    asked = parser.parse_args()
    whole, killed = asked.folder / "whole", asked.folder / "killed"

    subprocess.run(pretrain(asked.realm, whole), check=True)
    last = kill_after_first_checkpoint(pretrain(asked.realm, killed), killed)
    print(f"killed; first checkpoint {last.relative_to(killed)}", flush=True)
    subprocess.run(pretrain(asked.realm, killed, "--resume"), check=True)

    wanted, got = (numbers(json.loads((out / "summary.json").read_text("utf-8"))) for out in (whole, killed))
    apart = [name for name in sorted(wanted.keys() | got.keys()) if wanted.get(name, "-") != got.get(name, "-")]
    for name in apart:
        print(f"{name}: {wanted.get(name, 'absent')} uninterrupted, {got.get(name, 'absent')} killed and resumed")
    if apart or not wanted:
        sys.exit(f"{len(apart)} of {len(wanted)} numbers differ between the two runs")
    print(f"all {len(wanted)} numbers of the killed and resumed run equal those of the uninterrupted one")


if __name__ == "__main__":
    main()
