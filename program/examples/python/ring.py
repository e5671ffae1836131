"""A message round a ring, and every operation of the group.

    PYTHONPATH=program/python GLEAN_LIBRARY=target/release/libglean_program.so python3 ring.py 5
    glean submit --ranks 5 --input ring.py --input glean.py --input libglean_program.so --wait \\
        -- python3 ring.py
"""

import sys

import glean


def program(rank):
    me, size = rank.number, rank.size
    received = rank.irecv((me - 1) % size, 7) if size > 1 else None
    if received:
        rank.isend((me + 1) % size, 7, b"from %d" % me).wait()
        message = received.wait()
        assert message == ((me - 1) % size, 7, b"from %d" % ((me - 1) % size)), message

    rank.barrier()
    assert rank.broadcast(0, b"gleaned" if me == 0 else b"") == b"gleaned"
    assert rank.reduce(0, glean.SUM, [me, 1]) == ([sum(range(size)), size] if me == 0 else None)
    assert rank.allreduce(glean.MAX, [me / 2]) == [(size - 1) / 2]
    gathered = rank.gather(0, b"x" * me)
    assert gathered == ([b"x" * i for i in range(size)] if me == 0 else None), gathered
    assert rank.scatter(0, [b"y" * i for i in range(size)] if me == 0 else ()) == b"y" * me
    assert rank.alltoall([b"%d to %d" % (me, i) for i in range(size)]) == [
        b"%d to %d" % (i, me) for i in range(size)
    ]

    try:
        rank.send(9999, 1, b"")
        raise AssertionError("sent to nobody")
    except glean.Error as error:
        assert str(error).startswith("rank 9999 of "), error
    assert rank.restore() is None
    if me == 0:
        print(f"ring: answer ok: round {size} ranks")


glean.run(program, ranks=int(sys.argv[1]) if len(sys.argv) > 1 else 5)
