"""Any Python or tensor value as bounded DAP variables. Runs on the held thread only."""
