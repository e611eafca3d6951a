"""Fuzz targets: what strangers, disks and other versions may hand to the sidecar.

A target is a module with `fuzz_one(data)`, which raises for whatever breaks its promise, and `SEEDS`, its first inputs.
`python -m tests.fuzz.run` runs them guided by coverage and keeps what reaches new code in `corpus/`; `test_corpus.py`
replays that with every other test.
"""
