"""What everything else uses: errors, output, clocks, ways to stop and to send."""
