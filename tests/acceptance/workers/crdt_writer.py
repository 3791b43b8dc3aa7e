"""Adds to and removes from a replicated set until it is killed, and says each change once it is made.

crdt_writer.py FILE EXCHANGE LABEL
"""

from __future__ import annotations

import itertools
import json
import random
import sys

from fencelock.crdt import ORSet, Replica


def say(**what: str) -> None:
    print(json.dumps(what), flush=True)


def main(path: str, exchange: str, label: str) -> None:
    rng = random.Random(label)
    with Replica("tags", ORSet, path=path, exchange=exchange) as tags:
        say(ready=tags.id)
        for number in itertools.count():
            word = f"{label}-{number}"
            tags.update(lambda value, word=word: value.add(tags.id, word))
            say(added=word)
            if rng.random() < 0.3:
                gone = str(rng.choice(sorted(map(str, tags.value.elements))))
                say(removing=gone)
                tags.update(lambda value, gone=gone: value.remove(gone))
                say(removed=gone)
            if rng.random() < 0.4:
                tags.sync()


main(*sys.argv[1:])
