"""The suite does not depend on how it is started."""
