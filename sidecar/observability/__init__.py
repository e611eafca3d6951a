"""What others see of the process: the numbers, the states, the lines.

metrics.py metric_types.py     counters and gauges, asked for by Prometheus · history.py  the last hour of them
health.py              starting, ready, degraded, …: determined here and nowhere else
logs.py log_limits.py  how lines look, and how many there may be
"""
