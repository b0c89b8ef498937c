"""The public listener of a process: its ROUTER, who may connect, what a stranger may cost.

    zap.py         whether a key is known
    guard.py       which connections are cut; pure
    kernel.py      what the kernel says of a connection
    self_test.py   tries to break in when the process starts
    gate.py        how many connections come in at once
    listener.py    all of it, in the loop of the process

docs/explanation/limits-before-authentication.md has each bound, its size and what was measured.
"""
