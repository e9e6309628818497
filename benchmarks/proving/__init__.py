"""The proving ground: sets, peers, ours, and the table of both."""
