"""How a program finds an instance and is let in: targets, contexts, logons."""
