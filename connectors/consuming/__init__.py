"""The inside of `RetryingConsumer`, in the order in which a record passes through it.

loop.py           the one thread that talks to Kafka: reads, pauses, sends back, commits
process_queue.py  what has been read of a partition and is not done; which offset may be committed
concurrently.py   batches for the listener, in any order     orderly.py   a partition's batches, one after the other
workers.py        who calls the listener: threads, an event loop, or the caller
listener.py       the user's function, and what its answer means
send_back.py      the record that asks the sidecar for another attempt
"""
