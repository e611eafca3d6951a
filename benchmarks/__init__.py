"""Figures beside their floors, measured in the same run: ``make bench``."""
