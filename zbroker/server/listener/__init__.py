"""The public door of a room: its ROUTER, who may come in, and what a stranger may cost.

    zap.py      whether a key is known                  guard.py    which connections are cut; pure
    kernel.py   what the kernel tells of a connection   trial.py    tries to break in, at the start
    gate.py     how many come in at once         door.py     all of it in the room's loop

docs/explanation/limits-before-authentication.md has each bound, its size and what was measured.
"""
