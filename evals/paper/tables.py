"""Writes the tables of all recorded results again, such as after floors were run; trains nothing.

python -m evals.paper.tables
"""

import importlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evals.paper.floor_table import floors
from evals.paper.output import markdown, replace_file
from evals.paper.papers import PAPERS

FOLDER = Path(__file__).resolve().parents[1]


def tables(folders: Sequence[str] = PAPERS) -> dict[Path, str]:
    """The table of each results file of these papers, by its file."""
    pages = {}
    for folder in folders:
        for path in sorted((FOLDER / folder / "results").glob("*.json")):
            content = json.loads(path.read_text(encoding="utf-8"))
            if "name" not in content or content["name"] == "floors":
                continue
            experiment = importlib.import_module(f"evals.{folder}.{content['name']}").EXPERIMENT
            experiment = replace(experiment, title=f"{experiment.title} ({content['scale']})")
            stem = path.name.removesuffix(".json")
            picture = f"{stem}.png" if path.with_name(f"{stem}.png").is_file() else ""
            floor_rows = floors(path.parent, content["scale"])
            pages[path.with_name(f"{stem}.md")] = markdown(
                experiment,
                content["rows"],
                content["commands"],
                picture,
                content.get("shares"),
                floor_rows,
                content.get("notes", ()),
            )
    return pages


def main() -> int:
    """Write the tables that changed, and say which."""
    for path, text in tables().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            replace_file(path, text)
            print(f"wrote {path.relative_to(FOLDER.parent)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
