"""Primes by a bag of tasks: rank 0 puts in ranges of numbers, whoever is free
counts the primes in one. Who is asked to retreat gives its range back; rank 0
saves what it has, so that it can be begun again there. With `spawn`, rank 0
begins alone and spawns as many workers as it can have.

    glean submit --ranks 5 --on-busy retreat --input bag.py --input glean.py \\
        --input libglean_program.so --wait -- python3 bag.py
"""

import json
import sys

import glean

LIMIT, RANGE, PRIMES = 20_000, 1_000, 2_262


def host(rank, spawns):
    saved = rank.restore()
    done, total = json.loads(saved) if saved else (0, 0)
    if saved is None:
        for start in range(0, LIMIT, RANGE):
            rank.add_task(start.to_bytes(4, "little"))
        rank.save(b"[0, 0]")
    if spawns:
        rank.spawn(rank.processors())
    while done < LIMIT // RANGE:
        total += int.from_bytes(rank.next_result().data, "little")
        done += 1
        rank.save(json.dumps([done, total]).encode())
    rank.close_bag()
    assert total == PRIMES, total
    print(f"bag: answer ok: {total} primes below {LIMIT}")


def work(rank):
    hand = []
    rank.on_retreat(lambda rank: [rank.return_task(task) for task in hand])
    for task in rank.tasks():
        hand.append(task)
        start = int.from_bytes(task.data, "little")
        primes = 0
        for number in range(start, start + RANGE):
            if number % 100 == 0:
                rank.heed()  # The owner may be back.
            primes += number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))
        rank.done(task, primes.to_bytes(4, "little"))
        hand.clear()
    if rank.parent is not None:
        rank.leave()


spawns = sys.argv[1:] == ["spawn"]
glean.run(
    lambda rank: host(rank, spawns) if rank.number == 0 else work(rank),
    ranks=1 if spawns else 4,
    processors=3 if spawns else 0,
)
