"""What everything else rests on: errors, output, clocks, ways to stop and to send."""
