"""Timewheel's daemon: intake → store → dispatch, one loop, exactly once."""
