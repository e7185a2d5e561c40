"""`python -m realm.models.weights hf:PATH`: what our encoders take from a folder, tensor by tensor."""

import sys

from realm.models.weights import (
    WeightsError,
    bert_config,
    load_bert,
    load_reader,
    load_tower,
    reader_settings,
    tower_settings,
)


def main(arguments: list[str]) -> int:
    """Prints a report for the joint encoder, the tower and, where the folder has one, the span reader."""
    if len(arguments) != 1:
        print(f"found {len(arguments)} arguments, wanted one: embedded or hf:PATH", file=sys.stderr)
        return 2
    (spec,) = arguments
    try:
        config, tower, reader = bert_config(spec), tower_settings(spec), reader_settings(spec)
        reports = {f"joint encoder, {config}": load_bert(spec, config)[1]}
        reports[f"tower, {tower or 'projection of your own width'}"] = load_tower(
            spec, config, tower.get("width", 1), "query"
        )[1]
        if reader:
            reports[f"span reader, {reader}"] = load_reader(spec, config, reader["width"])[1]
    except WeightsError as error:
        print(error, file=sys.stderr)
        return 1
    for title, report in reports.items():
        print(f"== {title}\n{report.table()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
