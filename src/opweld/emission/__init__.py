"""The pieces of the emitted file: fixed texts (texts/*.txt) and what writes the rest."""

from __future__ import annotations

from importlib import resources


def piece(name: str) -> str:
    """A fixed text of the emitted file: "original", "package" or "support"."""
    return (resources.files(__name__) / "texts" / f"{name}.txt").read_text(encoding="utf-8")
