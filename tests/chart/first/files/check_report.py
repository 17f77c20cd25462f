"""Make an observing run with the given arguments and check its report; exit with 0 if all is well."""

import json
import subprocess
import sys

done = subprocess.run(
    [sys.executable, "-I", "-m", "rebalancer", *sys.argv[1:]],
    stdout=subprocess.PIPE,
    check=False,
)
if done.returncode != 0:
    sys.exit(done.returncode)
report = json.loads(done.stdout)
wanted = {"apiVersion": "rebalancer/v1", "kind": "Report", "dryRun": True, "exitCode": 0}
wrong = [f"{key} is {report.get(key)!r}" for key in wanted if report.get(key) != wanted[key]]
if not report.get("nodes"):
    wrong.append("no node was seen")
if wrong:
    sys.exit("the report is not as it should be: " + "; ".join(wrong))
sys.stdout.write(
    f"{report['nodes']} nodes and {report['pods']} pods were read,"
    f" {len(report['moves'])} moves planned, none made.\n"
)
