"""What applications import to schedule, retry and read with Timewheel; also the wire contract everybody shares."""
