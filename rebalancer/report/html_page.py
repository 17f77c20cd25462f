"""The frame of the HTML report: a ``string.Template`` whose values are escaped already."""

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { color-scheme: light dark; --rail: #8883; --bar: #4a7; --bad: #c72; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: 0; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; border-top: 1px solid #8884; }
.quiet { opacity: .7; }
.end { font-size: 1.1rem; font-weight: 600; }
.warning { color: var(--bad); }
.rail { fill: var(--rail); }
.bar { fill: var(--bar); }
.bad .bar { fill: var(--bad); }
.landing { font-size: .85em; }
summary { cursor: pointer; }
code { overflow-wrap: anywhere; }
ul { margin: .3rem 0; }
</style>
</head>
<body>
<h1>$title</h1>
<p class="quiet">$cluster</p>
$warnings
<p class="end">$ending</p>
<p>$planned</p>
$done
<h2>Before and after</h2>
<table>
<tr><th>Strategy</th><th>Before</th><th>After</th><th>Cannot hold</th></tr>
$scores
</table>
<h2>Moves</h2>
$moves
<h2>Left where they are</h2>
$skipped
<h2>About this run</h2>
<p>$funnel</p>
<p class="quiet">Policy <code>$policy_hash</code><br>$timings</p>
</body>
</html>
"""
