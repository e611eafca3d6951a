"""What one partition of the wheel topic waits with, and how it goes out.

partition.py           the source that the loop draws from: offer, take, confirm · start_gate.py  when it begins to send
intake.py              a batch that has been read · decisions.py  cancels, replacements · in_seconds.py intake_pause.py
staging.py             to disk · taking_out.py  and out again · cancels.py  whom a cancel may still meet
ready.py               what is about to fall due, in memory · in_hand.py  what is being sent
copies.py              rolls · progress.py  what is committed · checkpoints.py
view.py figures.py     what it tells of itself
"""
