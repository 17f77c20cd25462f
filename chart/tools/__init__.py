"""What makes files of the chart; not part of the packaged chart."""
