"""Writes what came out of the papers' claims, from the results that are recorded; trains nothing.

    python -m evals.claims

The claims' tables stand in evals/claims.md between the lines that say so, the overview in evals/README.md; the rest of
both pages is written by hand. The folder of each paper gets ledger.md, with all figures. The rule is that
of evals/paper/ledger.py, one for all papers.
"""

import sys
from pathlib import Path

from evals.fedoras import ledger as fedoras
from evals.fedtrans import ledger as fedtrans
from evals.hypemefed import ledger as hypemefed
from evals.moss import ledger as moss
from evals.paper.blocks import with_block
from evals.paper.claim_pages import claim_lines, overview_lines, section_lines
from evals.paper.ledger import Claim, Judged, judged
from evals.paper.papers import TITLES
from evals.paper.runs import Records
from fedscale_ext.core.errors import UserError
from fedscale_ext.util.atomic_files import write_atomic

FOLDER = Path(__file__).resolve().parent
CLAIMS: dict[str, dict[str, Claim]] = {
    "fedtrans": fedtrans.CLAIMS,
    "hypemefed": hypemefed.CLAIMS,
    "fedoras": fedoras.CLAIMS,
    "moss": moss.CLAIMS,
}
SCALE = "small"
_COMMAND = "python -m evals.claims"


def all_judged() -> list[tuple[str, Judged]]:
    """All claims with the folder of their paper, in the papers' order."""
    claims_judged = []
    for name, claims in CLAIMS.items():
        records = Records.load(FOLDER / name)
        measured = {one.name: one for one in hypemefed.costs(records.folder)} if name == "hypemefed" else {}
        claims_judged += [
            (name, measured.get(claim) or judged(claim, what, records, SCALE)) for claim, what in claims.items()
        ]
    return claims_judged


def pages() -> dict[Path, str]:
    """All files that this script writes, as they are to be."""
    judged_claims = all_judged()
    claims, readme = (FOLDER / name for name in ("claims.md", "README.md"))
    texts = {
        claims: with_block(claims.read_text(encoding="utf-8"), "ledger", _COMMAND, claim_lines(judged_claims, TITLES)),
        readme: with_block(
            readme.read_text(encoding="utf-8"), "overview", _COMMAND, overview_lines(judged_claims, TITLES)
        ),
    }
    for name, title in TITLES.items():
        lines = [
            f"# Claims of {title}: all figures",
            "",
            "`python -m evals.claims` writes this page from the recorded results. It follows",
            "[the rule of all papers](../claims.md#the-rule).",
            f"One table has [all claims of {title}](../claims.md#{name}). Links lead to the commands.",
            "The [discussion](discussion.md) has causes and further trials.",
            "",
            "Differences are paired by seed; their interval is Student's.",
            "Figures of one or two seeds are shown and decide nothing.",
            "",
        ]
        lines += [line for folder, one in judged_claims if folder == name for line in section_lines(one)]
        texts[FOLDER / name / "ledger.md"] = "\n".join(lines).rstrip() + "\n"
    return texts


def main() -> int:
    """Write all files; tells which of them changed. Exit code 2 if recorded results are broken."""
    try:
        texts = pages()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    changed = 0
    for path, text in texts.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_atomic(path, text)
            print(f"wrote {path.relative_to(FOLDER.parent)}")
            changed += 1
    print(f"{changed} of {len(TITLES) + 2} files changed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
