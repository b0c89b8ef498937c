"""The process for subscribers: bookmark and live subscriptions, as cursors over the log."""
