"""What tests run is compiled, from the sources that stand here, and reports say where it is not."""

from pathlib import Path

from click.testing import CliRunner

import rebalancer.core
from rebalancer import cli, core

FOLDER = Path(rebalancer.core.__file__).parent


def test_the_core_is_compiled_from_the_sources_that_stand_here():
    assert core.is_compiled(), "run `make setup`"
    for declared in FOLDER.glob("*.pxd"):
        # An extension for one version of Python wins over that for all of them.
        (extension,) = FOLDER.glob(f"{declared.stem}.*.so")
        for source in (declared, declared.with_suffix(".py")):
            assert source.stat().st_mtime <= extension.stat().st_mtime, (
                f"{source.name} is newer than what was compiled of it: run `make setup`"
            )


def test_the_version_says_whether_the_core_is_interpreted(monkeypatch):
    compiled = CliRunner().invoke(cli.main, ["--version"]).output
    monkeypatch.setattr(cli, "is_compiled", lambda: False)
    interpreted = CliRunner().invoke(cli.main, ["--version"]).output
    assert interpreted == compiled.replace("\n", f" ({core.INTERPRETED})\n")
    assert core.INTERPRETED not in compiled
