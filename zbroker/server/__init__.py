"""What the processes of an instance share: listeners, peers, budgets, links to the journal."""
