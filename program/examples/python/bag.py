"""Primes by a bag of tasks: rank 0 puts in ranges of numbers, whoever is free
counts the primes in one. Who is asked to retreat gives its range back; rank 0
saves what it has, so that it can be begun again there. With `spawn`, rank 0
begins alone and spawns as many workers as it can have; with `malleable` it asks
for some, takes more when they are offered, and sends workers away when
processors are wanted back.

    glean submit --ranks 5 --on-busy retreat --input bag.py --input glean.py \\
        --input libglean_program.so --wait -- python3 bag.py
"""

import json
import sys

import glean

LIMIT, RANGE, PRIMES = 20_000, 1_000, 2_262
WORKERS, LEAVE = 8, 1


def adapt(rank, team):
    """Does what was agreed since."""
    while agreed := rank.agreed():
        team.extend(agreed.more)
        for _ in range(0 if agreed.enforced else min(agreed.fewer, len(team))):
            rank.send(team.pop(), LEAVE, b"")


def host(rank, mode):
    saved, team = rank.restore(), []
    done, total = json.loads(saved) if saved else (0, 0)
    if saved is None:
        for start in range(0, LIMIT, RANGE):
            rank.add_task(start.to_bytes(4, "little"))
        rank.save(b"[0, 0]")
    if mode == "spawn":
        rank.spawn(rank.processors())
    elif mode == "malleable":
        rank.on_offer(
            lambda offer: min(offer.by, WORKERS - len(team) if offer.more else len(team))
        )
        team.extend(rank.request(WORKERS // 4))
    while done < LIMIT // RANGE:
        adapt(rank, team)
        total += int.from_bytes(rank.next_result().data, "little")
        done += 1
        rank.save(json.dumps([done, total]).encode())
    rank.close_bag()
    assert total == PRIMES, total
    print(f"bag: answer ok: {total} primes below {LIMIT}")


def work(rank):
    hand, leave = [], rank.irecv(0, LEAVE)
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
        if leave.test():
            break
    leave.withdraw()
    if rank.parent is not None:
        rank.leave()


mode = sys.argv[1] if len(sys.argv) > 1 else ""
glean.run(
    lambda rank: host(rank, mode) if rank.number == 0 else work(rank),
    ranks=1 if mode else 4,
    processors=3 if mode else 0,
)
