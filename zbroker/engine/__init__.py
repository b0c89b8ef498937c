"""What drives every core: one turn, its common events and effects, and what cores share. Pure."""
