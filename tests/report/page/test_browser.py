"""The page in a real browser, where there is one: Chromium, headless."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
PROBE = """<script>addEventListener("load", () => { document.title = JSON.stringify([
  document.documentElement.scrollWidth, document.documentElement.clientWidth,
  [...document.querySelectorAll("figure svg")].every(svg => svg.checkVisibility() === false ||
    svg.getBoundingClientRect().height > 60)]); });</script>"""


def chromium(page: Path, profile: Path, *options: str) -> str:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               f"--user-data-dir={profile}", *options, page.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_wider_than_a_small_window_and_every_plot_is_drawn(report: Path, tmp_path: Path):
    probed = tmp_path / "probed.html"
    probed.write_text(report.read_text(encoding="utf-8").replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    page = chromium(probed, tmp_path / "profile", "--window-size=500,900", "--dump-dom")
    title = re.search(r"<title>\[(\d+),(\d+),(true|false)\]</title>", page)
    assert title, page[:300]
    assert int(title[1]) <= int(title[2]) <= 500 and title[3] == "true"


def test_the_page_is_seen(report: Path, tmp_path: Path):
    shot = tmp_path / "shot.png"
    chromium(report, tmp_path / "profile", "--window-size=1000,1400", f"--screenshot={shot}")
    with Image.open(shot) as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24)}
    assert {(0x00, 0x72, 0xB2), (0xE6, 0x9F, 0x00), (0x00, 0x9E, 0x73)} <= colours  # the three lines
