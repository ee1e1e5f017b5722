"""The models of `examples/`, without what `opweld optimize` may have written beside them."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def example_names(folder: Path = EXAMPLES) -> tuple[str, ...]:
    """The names of the model files; `MODEL_new.py` is a result of a run, and no model."""
    models = (path.stem for path in folder.glob("*.py"))
    return tuple(sorted(name for name in models if not name.endswith("_new")))
