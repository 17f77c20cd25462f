"""What a release is made from: the files of one commit, its time, its version, its changes."""

import re
import subprocess
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT

_SECTION = re.compile(r"^## \[(.+?)\].*\n((?:(?!## ).*\n?)*)", re.MULTILINE)


class ReleaseError(Exception):
    """A release cannot be made, or a file of it does not do what it should; the message says why."""


@dataclass(frozen=True)
class Source:
    """The files of a commit below ``folder``, when it was made, in seconds since 1970, and its hash."""

    folder: Path
    epoch: int
    commit: str = ""

    @property
    def version(self) -> str:
        """The version of the distribution."""
        project = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))
        return str(project["project"]["version"])

    def changes(self) -> str:
        """Return the section of this version in the changelog; without one, what is not released yet.

        Raises:
            ReleaseError: neither section is there, or it is empty.
        """
        text = (self.folder / "CHANGELOG.md").read_text(encoding="utf-8")
        sections = {name: body.strip() for name, body in _SECTION.findall(text)}
        body = sections.get(self.version) or sections.get("Unreleased")
        if not body:
            raise ReleaseError(
                f"CHANGELOG.md has no changes under [{self.version}] or [Unreleased]"
            )
        return body


def checked_out(to: Path, checkout: Path = ROOT) -> Source:
    """Write the files of the last commit to ``to``, with modes that no umask has changed.

    Raises:
        ReleaseError: there is no git, no commit, or something is not committed.
    """
    if changed := _git(checkout, "status", "--porcelain").decode().splitlines():
        raise ReleaseError(
            f"a release is made from a commit: commit or stash {changed[0][3:]}"
            + (f" and {len(changed) - 1} more" if len(changed) > 1 else "")
        )
    with tempfile.TemporaryFile() as archive:
        archive.write(_git(checkout, "archive", "--format=tar", "HEAD"))
        archive.seek(0)
        with tarfile.open(fileobj=archive) as packed:
            packed.extractall(to, filter=_plain)  # noqa: S202 - our own commit
    epoch, commit = _git(checkout, "log", "-1", "--format=%ct %H").decode().split()
    return Source(to, int(epoch), commit)


def _plain(entry: tarfile.TarInfo, to: str) -> tarfile.TarInfo | None:
    mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return tarfile.data_filter(entry.replace(mode=mode), to)


def _git(checkout: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments],  # noqa: S607
            capture_output=True,
            check=True,
        )
    except FileNotFoundError:
        raise ReleaseError("a release is made from a commit: install git") from None
    except subprocess.CalledProcessError as error:
        raise ReleaseError(f"git {arguments[0]}: {error.stderr.decode().strip()}") from None
    return done.stdout
