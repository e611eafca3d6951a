"""What the audit found, as a value (`model`), a page, Prometheus text and JSON."""
