"""How facts are worded: for each relation some templates of the knowledge corpus and others of the statements.

{x} is the place, {y} the object. The two sides share the place and the object, and hardly a content word: which
wording asks for which has to be learned.
"""

from __future__ import annotations

from typing import NamedTuple


class Relation(NamedTuple):
    knowledge: tuple[str, ...]
    query: tuple[str, ...]


# Every block begins with one of these: {y} is the state or country of the place.
IDENTITY = ("{x} is a place in {y}.", "{x} lies in {y}.", "In {y} there is a place called {x}.")

RELATIONS = {
    "country": Relation(
        (
            "{x} is a populated place of {y}.",
            "{x} belongs to the nation of {y}.",
            "The flag that flies over {x} is that of {y}.",
        ),
        ("The country of {x} is {y}.", "{x} can be found in {y}.", "Whoever visits {x} has come to {y}."),
    ),
    "timezone": Relation(
        (
            "Clocks in {x} follow {y} time.",
            "{x} keeps the hour of {y}.",
            "When it is noon in {y}, bells ring twelve in {x} as well.",
        ),
        ("The time zone of {x} is {y}.", "{x} shares its time zone with {y}.", "Watches in {x} are set as in {y}."),
    ),
    "population": Relation(
        (
            "About {y} thousand people live in {x}.",
            "{x} is home to some {y} thousand souls.",
            "The census counts {y} thousand persons in {x}.",
        ),
        (
            "The population of {x} is near {y} thousand.",
            "{x} has roughly {y} thousand inhabitants.",
            "Residents of {x} number {y} thousand.",
        ),
    ),
    "neighbour": Relation(
        (
            "The closest large city to {x} is {y}.",
            "No large city is closer to {x} than {y}.",
            "{y} is the next metropolis from {x}.",
        ),
        (
            "The big neighbour of {x} is {y}.",
            "The major town nearest {x} is {y}.",
            "Whoever asks for a major town near {x} is sent to {y}.",
        ),
    ),
    "distance": Relation(
        (
            "A large city is {y} km away from {x}.",
            "The closest metropolis is {y} km off {x}.",
            "As the crow flies, {x} and a large city are {y} km apart.",
        ),
        (
            "The distance from {x} to a major town is {y} kilometres.",
            "To its big neighbour {x} has {y} kilometres.",
            "{x} is {y} kilometres from its big neighbour.",
        ),
    ),
    "latitude": Relation(
        (
            "{x} lies {y} degrees off the equator.",
            "The equator is {y} degrees away from {x}.",
            "The parallel of {y} degrees runs by {x}.",
        ),
        ("The latitude of {x} is {y}.", "On a map {x} has the latitude {y}.", "Its latitude puts {x} at {y}."),
    ),
    "longitude": Relation(
        (
            "{x} lies {y} degrees off Greenwich.",
            "The meridian of {y} degrees runs by {x}.",
            "Greenwich is {y} degrees away from {x}.",
        ),
        ("The longitude of {x} is {y}.", "On a map {x} has the longitude {y}.", "Its longitude puts {x} at {y}."),
    ),
    "rank": Relation(
        (
            "{x} is number {y} by size in its nation.",
            "Sorted by size, {x} comes as number {y} of its nation.",
            "In the list of its nation's cities {x} holds place {y}.",
        ),
        (
            "The rank of {x} among towns at home is {y}.",
            "{x} ranks {y} among the towns of the land.",
            "Among the towns of the land, {x} has the rank {y}.",
        ),
    ),
    "state": Relation(
        (
            "The governor of {y} governs {x} too.",
            "{x} is held by {y}, a member of the union.",
            "Laws passed in the capitol of {y} hold in {x}.",
        ),
        ("{x} is a town in the American state {y}.", "The American state of {x} is {y}.", "Maps show {x} within {y}."),
    ),
    "name": Relation(
        (
            "Some call {x} by the word {y}.",
            "{y} is what others say for {x}.",
            "On old signs {x} is written {y}.",
        ),
        ("Another name of {x} is {y}.", "{x} is also known as {y}.", "A second name for {x} is {y}."),
    ),
}
