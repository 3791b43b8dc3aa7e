"""The page on scale, made of what was measured and simulated: `python -m bench.scale`.

places.py      where locks are kept; processor, memory and connections of a server, as the system counts them
client.py      clients in a process of their own, which do what they are told
crowd.py       several such processes, and what is seen while they work
world.py       virtual time: stations that serve, gates that let in
simulation.py  clients, servers and locks in it
model.py       what was measured becomes a simulation; checked, and taken further
kept.py        what the docs keep of it: docs/pictures/scale.json
sharding.py    how names spread over buckets, nodes and servers
figures.py     what is worked out: capacities, and what is full first
page.py        the tables, cells.py what is in them
pictures.py    the plots

`bench/suites/scale.py` measures.
"""
