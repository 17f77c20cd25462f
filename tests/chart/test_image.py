"""What is taken out of the image; that the rest imports is checked whenever it is built."""

import pytest

from image import unused


def installed(packages, *names):
    """Pretend that pip has installed distributions of one module each, and the client."""
    (packages / "kubernetes" / "aio").mkdir(parents=True)
    for name in names:
        (packages / name).mkdir()
        (packages / name / "__init__.py").touch()
        described = packages / f"{name}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        files = [f"{name}/__init__.py", f"{described.name}/METADATA", f"{described.name}/RECORD"]
        (described / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_the_asynchronous_client_and_what_only_it_needs_are_taken_out(tmp_path):
    installed(tmp_path, *unused._DISTRIBUTIONS, "requests")
    unused.remove(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["requests", "requests-1.0.dist-info"]


def test_a_list_that_is_out_of_date_is_an_error(tmp_path):
    installed(tmp_path, *(unused._DISTRIBUTIONS - {"yarl"}))
    with pytest.raises(FileNotFoundError, match="yarl"):
        unused.remove(tmp_path)


def test_what_cannot_be_imported_ends_the_build(tmp_path):
    with pytest.raises(Exception, match="exit status 1"):
        unused.check(tmp_path)
