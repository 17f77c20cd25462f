"""The pictures on the pages of strategies: pods on nodes now and as planned, cut out of the HTML report.

The report is that of the page's example; nothing but its panels are laid out here.
"""

import re
from collections.abc import Iterator
from importlib.resources import files as resources

from rebalancer.registry import Registry
from tests.docs.pages import DOCS, ROOT, strategy_pages
from tests.support.cli import call

FOLDER = DOCS / "images" / "strategies"
_RUN = re.compile(r"<!-- written: output \d+ rebalancer (run .+?) -->")
_SVG = re.compile(
    r'<svg class="pods" viewBox="(?P<box>0 0 (?P<width>\d+) (?P<height>\d+))".*?>\n(?P<drawn>.*?)</svg>',
    re.DOTALL,
)
_GAP, _MARGIN = 40, 16
_PAGE = """<svg xmlns="http://www.w3.org/2000/svg" class="pods" viewBox="0 0 {width} {height}" width="{width}">
<style>
{style}.page {{ fill: #fcfcfb; }}
@media (prefers-color-scheme: dark) {{ .page {{ fill: #0f1317; }} }}
</style>
<rect class="page" width="{width}" height="{height}" rx="8"/>
{drawn}</svg>
"""


def files() -> Iterator[tuple[str, bytes]]:
    """Yield the path in the repository and the content of each picture."""
    for name, page in strategy_pages().items():
        if Registry.installed()[name].scales is None:
            path = (FOLDER / f"{name}.svg").relative_to(ROOT)
            yield str(path), picture(name, page.text).encode()


def picture(strategy: str, page: str) -> str:
    """Return the SVG for the example of a page; one that runs no example is about the drift of README.

    Raises:
        ValueError: the report has no such picture.
    """
    run = _RUN.search(page)
    words = run[1] if run else f"run --snapshot docs/examples/zone-back.zip --strategy {strategy}"
    done = call([*words.split(), "-o", "html"], cwd=ROOT)
    done.check_returncode()
    drawings = list(_SVG.finditer(done.stdout))
    if len(drawings) != 3:
        raise ValueError(f"{words}: the report has no pods on nodes")
    return _laid_out(*drawings)


def _laid_out(before: re.Match[str], after: re.Match[str], keys: re.Match[str]) -> str:
    x = _MARGIN
    drawn = []
    for each in (before, after, keys):
        y = _MARGIN + (24 if each is keys else 0)
        size = f'width="{each["width"]}" height="{each["height"]}" viewBox="{each["box"]}"'
        drawn.append(f'<svg x="{x}" y="{y}" {size}>\n{each["drawn"]}</svg>\n')
        x += int(each["width"]) + _GAP
    height = max(int(before["height"]), int(keys["height"]) + 24) + 2 * _MARGIN
    style = (resources("rebalancer.report") / "page" / "pod_map.css").read_text(encoding="utf-8")
    return _PAGE.format(width=x - _GAP + _MARGIN, height=height, style=style, drawn="".join(drawn))
