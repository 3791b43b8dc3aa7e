"""Random ids: nobody else has them, not even a forked child."""

from __future__ import annotations

import os

from fencelock.runtime.ids import DRAWN, new_id


def test_ids_are_32_hexadecimal_digits_and_differ() -> None:
    ids = [new_id() for _ in range(3 * DRAWN)]
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)


def test_a_forked_child_does_not_hand_out_its_parents_ids() -> None:
    new_id()  # there is a stock now
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, " ".join(new_id() for _ in range(DRAWN)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        theirs = set(pipe.read().split())
    assert os.waitpid(child, 0)[1] == 0
    assert len(theirs) == DRAWN
    assert not theirs & {new_id() for _ in range(DRAWN)}
