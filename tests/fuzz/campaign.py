"""The parent: batches of models in child processes; a crash or a hang of one is its outcome."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.outcome import Outcome, from_data

from opweld.process.child import Finished, run_child

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "tests.fuzz.batch")
# For importing torch, and for each model: far beyond what it takes on a busy machine.
START_S, MODEL_S = 120.0, 60.0


@dataclass(frozen=True)
class Judging:
    """Where, for what target, and with which seeds a model is judged.

    A model that fails with the first seed is judged with the others: numbers that differ by chance
    do not differ each time. One model of `autocast_every` is captured under autocast too, which
    takes as long as all the rest; 0 for none.
    """

    folder: Path
    target: str = "cpu"
    seeds: tuple[int, ...] = (11, 12, 13)
    autocast_every: int = 4
    model_s: float = MODEL_S

    def outcomes(self, sources: Mapping[str, str]) -> dict[str, Outcome]:
        """What becomes of the model files, by name, in their order."""
        self.folder.mkdir(parents=True, exist_ok=True)
        found: dict[str, Outcome] = {}
        remaining = dict(sources)
        while remaining:
            for outcome in self._batch(remaining):
                found[outcome.name] = outcome
            remaining = {name: text for name, text in remaining.items() if name not in found}
        return {name: found[name] for name in sources}

    def _batch(self, sources: Mapping[str, str]) -> Iterator[Outcome]:
        """The outcomes up to the end of the child; where it ended itself, that model's too."""
        events: list[dict[str, Any]] = []
        finished = self._run(sources, events)
        done = [from_data(event["outcome"]) for event in events if "outcome" in event]
        yield from done
        names = {outcome.name for outcome in done}
        if names >= set(sources):
            return
        begun = [event for event in events if "begin" in event]
        last = begun[-1] if begun else {"begin": "", "stage": "start"}
        name = last["begin"] or next(name for name in sources if name not in names)
        yield Outcome(name, f"{_ending(finished)} in {last['stage']}", finished.tail[-2000:])

    def _run(self, sources: Mapping[str, str], events: list[dict[str, Any]]) -> Finished:
        for name, text in sources.items():
            (self.folder / f"{name}.py").write_text(text, "utf-8")
        request = self.folder / "request.json"
        names = list(sources)
        asked = {
            "folder": str(self.folder),
            "models": names,
            "autocast": names[:: self.autocast_every] if self.autocast_every else [],
            "target": self.target,
            "seeds": self.seeds,
        }
        request.write_text(json.dumps(asked))
        return run_child(
            [*COMMAND, str(request)],
            time_limit_s=START_S + self.model_s * len(sources),
            environ=_environment(self.folder),
            on_event=lambda line: events.append(json.loads(line)),
        )


def _ending(finished: Finished) -> str:
    return "hangs" if finished.timed_out else f"process {finished.ending()}"


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {
        **os.environ,
        "PYTHONPATH": path.rstrip(os.pathsep),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
    }
