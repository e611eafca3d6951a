"""What the tests share: a broker, the sidecar as a process, and the ledger that judges deliveries."""
