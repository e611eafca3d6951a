"""The timer store: the files of one wheel partition. Imports no Kafka, reads no clock.

`timer_log` (RIP-43's TimerLog) and `timer_wheel` (its TimerWheel) index what `payload_log` holds; `checkpoint` says up
to where the three are complete. All file access goes through the seam in `files`.
"""
