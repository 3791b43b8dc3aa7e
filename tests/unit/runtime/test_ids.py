"""Random ids: no two are alike, not even in a forked child."""

from __future__ import annotations

import os

from fencelock.runtime.ids import new_id

MANY = 200


def test_ids_are_32_hexadecimal_digits_and_differ() -> None:
    ids = [new_id() for _ in range(MANY)]
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)


def test_a_forked_child_does_not_hand_out_its_parents_ids() -> None:
    new_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, " ".join(new_id() for _ in range(MANY)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        theirs = set(pipe.read().split())
    assert os.waitpid(child, 0)[1] == 0
    assert len(theirs) == MANY
    assert not theirs & {new_id() for _ in range(MANY)}
