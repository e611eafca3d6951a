"""Spark jobs that audit every scheduled message."""
