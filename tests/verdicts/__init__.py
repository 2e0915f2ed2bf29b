"""Programs with a known verdict: how often ``compare`` finds it."""
