"""The trace of a run, sent to an OpenTelemetry collector."""
