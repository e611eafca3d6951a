"""How the sidecar stands towards Kafka, beside the records themselves.

clients.py             the clients of one session · topic_admin.py  its questions about topics and offsets
topics.py topic_plan.py    the schedule topics: created, checked · topic_watch.py  how long Kafka keeps them
probe.py advertised.py     whether any broker answers, and if not why · failure.py  Kafka's errors as exit codes
throttling.py          brokers that delay their answers · backlog.py  what Kafka still holds for the sidecar
"""
