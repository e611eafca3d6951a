"""Intake and delivery, each to be stopped and started while the sidecar runs.

RocketMQ's ``timerStopEnqueue`` and ``timerStopDequeue``, for levels as well as for the wheel:

    stop_enqueue   no schedule topic is read; what has been read is delivered
    stop_dequeue   nothing is published, neither deliveries nor dead letters; intake and cancels go on, as long as there
                   is room for what waits: in memory a wheel partition holds what was due as it was read, rejections and
                   what replacements bring

Membership in the group is kept either way. The settings give the values at start; a restart goes back to them.
"""

from dataclasses import dataclass


@dataclass
class Switches:
    """Single assignments only, so that the loop reads between turns, without a lock, what web threads write."""

    stop_enqueue: bool = False
    stop_dequeue: bool = False
