"""Builds the site from the repository's pages as they stand: mkdocs calls :func:`on_config` before it reads them.

Pages and pictures are copied to a folder of their own with the same tree, so that links between them hold. A link to a
file that is no page, such as a module, becomes its text.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "evals", "device_traces", "benchmark_configs")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Stage the pages and make mkdocs read them there."""
    stage = Path(tempfile.mkdtemp(prefix="fedscale-site-"))
    for source in sorted(pages()):
        target = stage / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = source.read_text(encoding="utf-8")
            target.write_text(with_page_links(text, source), encoding="utf-8")
        else:
            shutil.copyfile(source, target)
    config["docs_dir"] = str(stage)
    return config


def on_post_build(config: Any) -> None:
    """Remove the staged pages."""
    shutil.rmtree(config["docs_dir"], ignore_errors=True)


def pages() -> set[Path]:
    """The repository's pages and pictures, but for those of the tests and of the package."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    files = (Path(name) for name in listed if name)
    return {
        ROOT / file
        for file in files
        if file.suffix in {".md", ".png", ".svg"}
        and (ROOT / file).is_file()
        and (len(file.parts) == 1 or file.parts[0] in FOLDERS)
    }


def with_page_links(text: str, source: Path) -> str:
    """Return a page whose links to files that are no pages are text; code blocks stay as they are."""
    included = pages_cache()

    def link(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return match[0]
        path = (source.parent / target.partition("#")[0]).resolve()
        if path in included or picture:
            return match[0]
        return label

    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


_included: set[Path] = set()


def pages_cache() -> set[Path]:
    """:func:`pages`, asked once."""
    if not _included:
        _included.update(pages())
    return _included
