"""One run, from reading to report: what every command that plans or acts calls."""
