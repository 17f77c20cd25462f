"""Which files the site of the docs has; mkdocs itself, which `make docs-site` calls, checks their links."""

import pytest

from tests.docs.pages import DOCS
from tests.docs.site.sources import ROOT, navigation, page_text, site_files


def test_every_page_of_docs_is_on_the_site_and_in_its_menu():
    files = {str(path) for path in site_files()}
    pages = {str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md")}
    assert pages <= files
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "chart/README.md"} <= files
    assert "docs/images/report.png" in files
    menu = [path for entry in navigation() for path in entry.values()]
    assert len(menu) == len(set(menu))
    assert set(menu) == {path for path in files if path.endswith(".md")}
    assert menu[:2] == ["README.md", "docs/README.md"]


def test_a_link_to_no_file_is_refused_and_one_to_a_folder_becomes_text(tmp_path):
    (tmp_path / "docs").mkdir()
    readme = tmp_path / "README.md"
    readme.write_text("# A\n[b](docs/b.md#x) [folder](docs) [away](https://x.test)\n")
    (tmp_path / "docs" / "README.md").write_text("# Docs\n")
    (tmp_path / "docs" / "b.md").write_text("# B\n```\n[no](link.md)\n```\n")
    assert [str(path) for path in site_files(tmp_path)] == [
        "README.md",
        "docs/README.md",
        "docs/b.md",
    ]
    assert page_text(readme) == "# A\n[b](docs/b.md#x) folder [away](https://x.test)\n"
    readme.write_text("[gone](docs/c.md)")
    with pytest.raises(FileNotFoundError, match=r"docs/c\.md"):
        site_files(tmp_path)
