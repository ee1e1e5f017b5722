"""One HTML page of a store: offline, without a word of a candidate that a browser would run."""

from __future__ import annotations

import base64
import hashlib
import tempfile
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from opweld import __version__
from opweld.delivery import check_output, publish
from opweld.suite.store import counts, reading, rows
from opweld.suite.values import VERDICTS

_COLUMNS = (
    *("name", "verdict", "cause", "reason", "grade", "device", "calibration", "log"),
    *("eager_ms", "compile_ms", "opweld_ms", "limit_ms", "ratio", "seconds", "attempts"),
)
_REASON = 400


def write(store: Path, out: Path) -> None:
    """Writes the page, whole or not at all.

    Raises:
        UserError: it is no store.
        OutputNotWritable: it cannot be written.
    """
    texts = {name: _text(name) for name in ("page.html", "page.css", "page.js")}
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters["figure"] = _figure
    template = environment.from_string(texts["page.html"])
    check_output(out)
    with reading(store) as db, tempfile.TemporaryDirectory(dir=out.parent) as folder:
        partial = Path(folder, out.name)
        devices = [dict(row) for row in db.execute("SELECT * FROM devices ORDER BY id")]
        runs = [dict(row) for row in db.execute("SELECT * FROM runs ORDER BY id")]
        found = counts(db)
        template.stream(
            style=Markup(texts["page.css"]),
            script=Markup(texts["page.js"]),
            policy=policy(texts["page.css"], texts["page.js"]),
            version=__version__,
            runs=runs,
            devices=devices,
            verdicts=[v for v in VERDICTS if any(v == verdict for verdict, _ in found)],
            found=sorted(found.items(), key=lambda item: -item[1]),
            total=sum(found.values()),
            rows=rows(db, _COLUMNS),
            limit=_REASON,
        ).dump(str(partial), encoding="utf-8")
        publish(partial, out)


def policy(style: str, script: str) -> str:
    """What a browser may do with the page: its own style and script, known by their digests."""
    return f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}"


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _text(name: str) -> str:
    return files("opweld").joinpath(f"suite/texts/{name}").read_text("utf-8")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
