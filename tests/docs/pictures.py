"""``make pictures``: the pictures of README, from a run on the example in docs.

The page is drawn by Chromium (``--chromium``, Debian's package ``chromium``), the terminal by rich.
"""

import argparse
import io
import re
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.docs.pages import DOCS, ROOT
from tests.support.cli import call

_EXAMPLE = "docs/examples/zone-back.zip"
_COMMAND = f"rebalancer run --snapshot {_EXAMPLE}"
_COLUMNS, _ROWS = 82, 26
_WIDTH, _HEIGHT = 1200, 1180
_UNSEEN = re.compile(r"<(style|script|footer)\b.*?</\1>|<[^>]*>", re.DOTALL)
SEEN = DOCS / "images" / "report.txt"
"""The text of the page in the picture, by which a test notices that the page says something else by now."""
_FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" class="rich-terminal" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""
"""rich's own, without fonts that are loaded from elsewhere."""


def _run(*flags: str) -> str:
    done = call(["run", "--snapshot", _EXAMPLE, *flags], cwd=ROOT)
    done.check_returncode()
    return done.stdout


def terminal() -> str:
    """Return the first lines of the report, as an SVG."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), color_system="standard")
    lines = _run("--color", "always").splitlines()[:_ROWS]
    console.print(Text(f"$ {_COMMAND}\n"))
    console.print(Text.from_ansi("\n".join(lines)))
    return console.export_svg(title="rebalancer", code_format=_FORMAT, unique_id="terminal")


def seen(html: str) -> str:
    """Return the text of a page, but for what is of one run only."""
    words = (line.strip() for line in _UNSEEN.sub("\n", html).splitlines())
    return "\n".join(filter(None, words)) + "\n"


def html_report() -> str:
    """Return the page of the picture."""
    return _run("-o", "html")


def page(chromium: str, to: Path) -> None:
    """Write the picture of the HTML report: its first screen."""
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        report = Path(folder) / "report.html"
        html = html_report()
        report.write_text(html, encoding="utf-8")
        flags = [
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            "--disable-gpu",
            f"--user-data-dir={folder}/profile",
            f"--window-size={_WIDTH},{_HEIGHT}",
            f"--screenshot={to}",
        ]
        subprocess.run([chromium, *flags, report.as_uri()], check=True, capture_output=True)
        SEEN.write_text(seen(html), encoding="utf-8")


def main() -> None:
    """Write both pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default="chromium")
    chromium = parser.parse_args().chromium
    images = DOCS / "images"
    images.mkdir(exist_ok=True)
    (images / "terminal.svg").write_text(terminal(), encoding="utf-8")
    page(chromium, images / "report.png")


if __name__ == "__main__":
    main()
