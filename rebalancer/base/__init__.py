"""The ground that every package uses: errors, output, clocks, stop conditions, HTTP requests."""
