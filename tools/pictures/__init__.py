"""The dashboard's pictures in the docs: a small company at work, and a Chromium that looks at it."""
