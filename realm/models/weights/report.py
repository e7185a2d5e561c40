"""What an import or an export did with every tensor, and the error of both."""

from __future__ import annotations

from dataclasses import dataclass

SHOWN = 3  # unused tensors that a line names


class WeightsError(ValueError):
    """Pretrained weights are absent, incomplete, or of another model than the config describes."""


@dataclass(frozen=True)
class Report:
    """Tensor names of the file that were mapped and unused, names it lacks, and our parts left as initialised.

    Names are told without the prefix that the layout puts before them all. into: our path of each mapped name.
    """

    mapped: tuple[str, ...]
    unused: tuple[str, ...]
    missing: tuple[str, ...]
    initialised: tuple[str, ...]
    layout: str
    into: tuple[str, ...]

    def __str__(self) -> str:
        rest = (f"{name} [{', '.join(getattr(self, name))}]" for name in ("unused", "missing", "initialised"))
        return ", ".join([f"mapped {len(self.mapped)} of {self.layout}", *rest])

    def line(self) -> str:
        """The report in one line: how many tensors were taken, which were not, and which of our parts stay random."""
        named = [*self.unused[:SHOWN], *(["..."] if len(self.unused) > SHOWN else [])]
        unused = f"{len(self.unused)} unused ({', '.join(named)})" if named else "none unused"
        random = f"{' and '.join(self.initialised)} random" if self.initialised else "nothing random"
        return f"{len(self.mapped)} tensors of {self.layout}, {unused}, {random}"

    def table(self) -> str:
        """The report for people, one tensor a line."""
        wide = max(map(len, self.mapped), default=0)
        pairs = zip(self.mapped, self.into, strict=True)
        lines = [f"layout {self.layout}", f"mapped {len(self.mapped)}"]
        lines += [f"  {name:<{wide}}  {path}" for name, path in pairs]
        for title in ("unused", "missing", "initialised"):
            names = getattr(self, title)
            lines += [f"{title} {len(names)}", *(f"  {name}" for name in names)]
        return "\n".join(lines)
