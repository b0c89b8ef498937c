"""What may cross a socket: commands, answers, bodies and tokens. Pure: no socket is opened here."""
