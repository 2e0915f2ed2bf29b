"""Shows any Python value or tensor as DAP variables of bounded size. Runs on the held thread."""
