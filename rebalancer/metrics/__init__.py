"""Metrics of one run, for a CronJob: pushed to a Pushgateway, or written for node_exporter's textfile collector.

``table`` names them; ``collect`` takes their values from a report, pushes and writes them.
"""
