"""Places of the world from GeoNames (CC BY 4.0): the real facts behind the facts corpus.

80,000 places with country, US state, coordinates, population, time zone and other names; source, licence and how the
table was made are in data/geonames/README.md. What is near what is computed here, from the coordinates.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np

FOLDER = Path(__file__).parent / "data" / "geonames"
CITIES, COUNTRIES = "cities.tsv.gz", "countries.tsv.gz"
CITY_FIELDS = tuple("id name country state latitude longitude population timezone spelling other".split())
COUNTRY_FIELDS = ("code", "name")
EARTH_KM = 6371.0
LARGE = 100_000


class GeonamesError(ValueError):
    """The place table is not where the package keeps it, or is not one."""


class Place(NamedTuple):
    """A place. country: its name. state: of the USA, "" elsewhere. latitude, longitude: degrees, north and east
    positive. timezone: as in "Europe/Rome". spelling, other: another spelling, another name, "" where there is none."""

    id: str
    name: str
    country: str
    state: str
    latitude: float
    longitude: float
    population: int
    timezone: str
    spelling: str
    other: str


def places() -> list[Place]:
    """All places, the most populous first. Raises GeonamesError."""
    countries = {code: name for code, name in _rows(COUNTRIES, COUNTRY_FIELDS)}
    return [
        Place(number, name, countries[code], state, float(north), float(east), int(people), zone, spelling, other)
        for number, name, code, state, north, east, people, zone, spelling, other in _rows(CITIES, CITY_FIELDS)
    ]


def nearest_large(chosen: list[Place], among: list[Place]) -> tuple[np.ndarray, np.ndarray]:
    """For each chosen place the nearest other one of at least 100,000 people: int64 number in `among`, and the
    distance in km along the great circle (haversine)."""
    large = np.flatnonzero([p.population >= LARGE for p in among])
    north_L, east_L = (np.radians([getattr(among[i], name) for i in large]) for name in ("latitude", "longitude"))
    ids = np.array([among[i].id for i in large])
    number = np.empty(len(chosen), np.int64)
    km = np.empty(len(chosen))
    for at, place in enumerate(chosen):
        north, east = np.radians(place.latitude), np.radians(place.longitude)
        half = np.sin((north_L - north) / 2) ** 2 + np.cos(north) * np.cos(north_L) * np.sin((east_L - east) / 2) ** 2
        half[ids == place.id] = np.inf
        best = int(half.argmin())
        number[at], km[at] = large[best], 2 * EARTH_KM * np.arcsin(np.sqrt(half[best]))
    return number, km


def _rows(name: str, fields: tuple[str, ...]) -> list[list[str]]:
    try:
        with gzip.open(FOLDER / name, "rt", encoding="utf-8") as file:
            head, *lines = file.read().splitlines()
    except OSError as error:
        raise GeonamesError(f"{FOLDER / name}: {error}, wanted the package's data: install it whole") from error
    rows = [line.split("\t") for line in lines]
    if tuple(head.split("\t")) != fields or any(len(row) != len(fields) for row in rows):
        raise GeonamesError(f"{FOLDER / name}: found columns {head.split()}, wanted {list(fields)} on every line")
    return rows
