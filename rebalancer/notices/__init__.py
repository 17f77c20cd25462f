"""Send one HTTP request after a run that acted, failed or stood still; its body is a JSON template."""
