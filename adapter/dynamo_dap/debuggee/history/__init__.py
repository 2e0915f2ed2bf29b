"""What a user can step back through: snapshots of a trace, time travel, what-if."""
