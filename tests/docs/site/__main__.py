"""``python -m tests.docs.site FOLDER``: builds the site; a link that leads nowhere fails it (``make docs-site``)."""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.docs.site.sources import ROOT, navigation, page_text, site_files

_STRICT = {
    "nav": {"omitted_files": "warn", "not_found": "warn", "absolute_links": "warn"},
    "links": {
        "not_found": "warn",
        "anchors": "warn",
        "absolute_links": "warn",
        "unrecognized_links": "warn",
    },
}


def build_site(target: Path) -> None:
    """Build the site into the folder ``target``.

    Raises:
        mkdocs.exceptions.Abort: mkdocs has warned of something.
    """
    with tempfile.TemporaryDirectory(prefix="docs-site-") as scratch:
        sources = Path(scratch) / "pages"
        for path in site_files():
            (sources / path).parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                (sources / path).write_text(page_text(ROOT / path), encoding="utf-8")
            else:
                shutil.copyfile(ROOT / path, sources / path)
        (Path(scratch) / "mkdocs.yml").write_text("site_name: kube-rebalancer\n")
        settings: dict[str, Any] = {
            "config_file": str(Path(scratch) / "mkdocs.yml"),
            "site_name": "kube-rebalancer",
            "docs_dir": str(sources),
            "site_dir": str(target.resolve()),
            "nav": navigation(),
            # Its fonts are in the package, and nothing is loaded from elsewhere.
            "theme": {"name": "readthedocs", "highlightjs": False, "analytics": {}},
            "validation": _STRICT,
            "exclude_docs": "",
            "markdown_extensions": ["tables", "fenced_code", "toc"],
            "strict": True,
        }
        build(load_config(**settings))


if __name__ == "__main__":
    # What fails the build is said by warnings only.
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    build_site(Path(sys.argv[1] if len(sys.argv) > 1 else "dist/site"))
