"""Figures beside their floors, measured in the same run: ``make bench``.

__main__.py      the command: which rows, how often, where the figures go
rows.py          THE TABLE: every row with its figures, floor and goal
throughput.py    rates: backlog, straight through, burst (of one partition or many, beside others that wait), intake
lateness.py      how late records come at a steady rate
pending.py       millions that wait: memory, disk, stops, starts, rebuild
floors.py        plain loops with the same client and options: what the product is held against
generator.py     writes records at a steady rate        (floors, generator and reader each in a process of its own)
reader.py        a user of the destination: judges every record, and how late it came
sidecar.py       the process under measurement, watched from outside
workload.py      topics and records        process.py   processes of this package
figures.py       what a row is             report.py    the table and the JSON        machine.py   where it was measured
results.py       the committed figures, results.json   chart.py compared.py   the picture and the table made of them
"""
