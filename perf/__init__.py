"""Benchmarks of zbroker, each next to the limit of what it is made of, measured in the same run.

    scripts/perf                    all workloads, 5 rounds each
    python -m perf publish --rounds 3
    scripts/perf --quick            the last commit and this checkout in the same rounds
    scripts/perf --sides main,.,kafka-fsync,rabbitmq-quorum

The first two measure this checkout (`perf.__main__`), the others several versions of zbroker and
its peers (`perf.compare`).

Rules: never on a file system in memory; the file system, the durability and the number of
fdatasyncs are printed; payloads differ from each other; the clock runs from the first publish() to
the last ack; a reader touches data and sequence of every message and the sum is checked; the raw
limit moves the same bytes in the group sizes that this run had; broker and limit alternate, and
each figure is the median over rounds; a peer that is not measured is named.
"""
