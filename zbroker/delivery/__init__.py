"""The delivery room: bookmark and live subscriptions, as cursors over the log."""
