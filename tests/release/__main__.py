"""``python -m tests.release FOLDER``: make a release of the last commit in FOLDER, and prove that it works."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.release import prove, provenance
from tests.release.make import Files, make
from tests.release.source import ReleaseError, checked_out


def main() -> int:
    """Make it twice, compare, install every file; only then is it put to its place."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    try:
        key = provenance.signing_key(os.environ)
        with tempfile.TemporaryDirectory(prefix="release-") as scratch:
            made = _made(Path(scratch), key)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(made.folder, folder)
    except (ReleaseError, RuntimeError, subprocess.SubprocessError) as error:
        _say(f"no release: {error}")
        return 1
    _say(f"{made.version} is in {folder}:")
    for path in sorted(folder.iterdir()):
        _say(f"  {path.stat().st_size:>12,}  {path.name}")
    return 0


def _made(scratch: Path, key: Ed25519PrivateKey | None) -> Files:
    sources = [checked_out(scratch / name / "source") for name in ("first", "somewhere-else")]
    files: list[Files] = []
    for source in sources:
        _say(f"making {source.version}, {len(files) + 1} of 2")
        work = source.folder.parent
        to = work / "release"
        to.mkdir()
        files.append(make(source, to, work, key))
    prove.same(*files)
    prove.sums(files[0])
    _say("made twice, the bytes are the same")
    _say(prove.signatures(files[0]))
    for file in (files[0].wheel(), files[0].sdist):
        _say(f"installing {file.name}")
        prove.distribution(file, sources[0], scratch / f"installed{file.suffix}")
    _say(f"rendering {files[0].chart.name}")
    prove.chart(files[0], sources[0])
    _say(f"{files[0].image.name}: {prove.image(files[0], sources[0], scratch)}")
    return files[0]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
