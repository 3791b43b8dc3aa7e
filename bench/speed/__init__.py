"""The page on speed, made of what was measured: `python -m bench.speed`.

kept.py       what is taken from bench/results and kept in docs/pictures/speed.json
rows.py       which targets the page tells of, in which order
page.py       the tables
pictures.py   the plots
reasons.toml  by hand: why a target is missed, and what was tried
"""
