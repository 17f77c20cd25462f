"""One run, from reading to report. Every command that plans or acts calls it."""
