"""Tests that need a GPU: ``make test-gpu``. Without one each is skipped, with what it needs."""
