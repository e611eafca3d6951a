"""The HTTP interface as the world sees it, in a process that delivers nothing.

    guard.py protocol.py   what gets in: sizes, time, Host, Origin, token, how many at once
    app.py                 who answers: the API itself, or the processes that deliver, through `workers.relay`
    messages.py send_back.py dead_letters.py redrives.py    the API
    kafka.py               its clients · at_once.py  a request, a transaction · key_ledger.py  each Idempotency-Key once
    process.py serve.py    the process, as a sidecar of one worker sees it, and as it sees itself

A sidecar of one worker starts this process beside itself (docs/adr/0012); with several, the supervisor is it.
"""
