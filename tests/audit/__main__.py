"""``python -m tests.audit [--strict]``: known vulnerabilities of the packages that the image ships, by pip-audit.

Ends with 1 if one is open; with ``--strict`` also if packages could not be judged.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from tests.audit.judge import judge

ROOT = Path(__file__).resolve().parents[2]
VEX = ROOT / "docs" / "project" / "vex.openvex.json"
"""Not there until there is something to say: OpenVEX wants at least one statement."""
SHIPPED = ROOT / "image" / "requirements.txt"


def main() -> int:
    """Ask, judge, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__)
    parser.add_argument("--strict", action="store_true")
    strict = parser.parse_args().strict
    command = [sys.executable, "-m", "pip_audit", f"--requirement={SHIPPED}", "--require-hashes"]
    flags = ["--disable-pip", "--format=json", "--progress-spinner=off", "--timeout=15"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        why = (done.stderr.strip() or "no output").splitlines()[-1]
        sys.stdout.write(f"audit: NOT JUDGED: pip-audit gave no answer: {why}\n")
        return int(strict)
    vex = json.loads(VEX.read_text(encoding="utf-8")) if VEX.exists() else None
    verdict = judge(json.loads(done.stdout), vex)
    sys.stdout.write("\n".join(verdict.lines()) + "\n")
    return int(bool(verdict.open) or (strict and bool(verdict.unjudged)))


if __name__ == "__main__":
    sys.exit(main())
