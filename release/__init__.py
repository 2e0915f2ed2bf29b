"""Builds a release: the wheel, the sdist, the extension, their bill of materials and their checksums."""
