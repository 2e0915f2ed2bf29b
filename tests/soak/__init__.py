"""What the debugger survives, at length: ``make soak``. The suite has a short form of each, the same one each time."""
