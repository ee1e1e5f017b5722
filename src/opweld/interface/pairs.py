"""What `opweld check` is given: two files, one file with both models, or two functions of files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opweld.errors import UserError
from opweld.model_file import main_file, read_source

FORMS = "give MODEL.py MODEL_new.py, or --reference FILE.py:f --candidate FILE.py:g"
SAME_FILE = (
    "the candidate stands in the file of what it is judged against, which the judge imports: "
    "this finds mistakes, and no deceit"
)


@dataclass(frozen=True, slots=True)
class Pair:
    """The two files; `reference` and `candidate` are names of functions in them, or "" for Model
    and ModelNew.
    """

    model: Path
    new: Path
    reference: str = ""
    candidate: str = ""

    @property
    def names(self) -> tuple[Path, Path]:
        """As an account names the two."""
        return _named(self.model, self.reference), _named(self.new, self.candidate)

    @property
    def is_one_file(self) -> bool:
        return self.model.resolve() == self.new.resolve()


def pair_of(
    model: Path | None, new: Path | None, reference: str | None, candidate: str | None
) -> Pair:
    """The pair that the command line names; its files have been read.

    Raises:
        UserError: what is given is no pair, or a file is missing or no Python.
    """
    if reference is None and candidate is None:
        if model is None:
            raise UserError("there is nothing to judge", next_step=FORMS)
        pair = Pair(model, new or model)
    elif model is not None or reference is None or candidate is None:
        raise UserError("--reference and --candidate stand together, and alone", next_step=FORMS)
    else:
        (model, f), (new, g) = _function(reference), _function(candidate)
        pair = Pair(model, new, f, g)
    read_source(pair.model)
    read_source(main_file(pair.new))
    return pair


def _function(text: str) -> tuple[Path, str]:
    file, colon, name = text.rpartition(":")
    if not (colon and file and name.isidentifier()):
        raise UserError(f"{text!r} names no function", next_step="write FILE.py:NAME")
    return Path(file), name


def _named(path: Path, function: str) -> Path:
    return Path(f"{path}:{function}") if function else path
