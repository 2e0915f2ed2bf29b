"""Shows a record: as text, JSON, a page, and one report for all ranks."""
