"""Alert rules and a dashboard, and what writes the generated ones of them: ``python -m monitoring``."""
