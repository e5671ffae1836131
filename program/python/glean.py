"""What a rank of a message-passing program says to the others, in Python.

    import glean

    def program(rank):
        total = rank.allreduce(glean.SUM, [rank.number])
        if rank.number == 0:
            print("the sum is", total[0])

    glean.run(program, ranks=5)

Messages are addressed to ranks, never to machines. Between two ranks, those of
one tag arrive once and in the order they were sent, however often either rank
is moved meanwhile. As a job (`glean submit --ranks 5 -- python3 program.py`),
each process is one rank; run by itself, all ranks are threads of this process.

This one file is the module; it needs `libglean_program.so`, which it looks for
where $GLEAN_LIBRARY says, then beside itself, then where the system looks. So
`glean submit --input glean.py --input libglean_program.so` is all a job needs.
`glean.h` says more of each call.
"""

import ctypes
import os
import sys
import threading
import traceback
from collections import namedtuple

__all__ = [
    "ANY", "SUM", "PRODUCT", "MIN", "MAX", "Error", "Gone", "Deadlock", "Closed", "NoProcessors",
    "Retreated", "Left", "Lost", "Message", "Task", "Offer", "Agreed", "Rank", "Request", "run",
]

ANY = -1
SUM, PRODUCT, MIN, MAX = range(4)

_OK, _NONE, _RETREATED, _PROGRAM = 0, 1, 10, 15
_I64, _F64 = 2, 5

Message = namedtuple("Message", "source tag data")
Task = namedtuple("Task", "id data")
# What the program is offered (`by` processors `more`) or asked to give; `last`:
# only yes or no is left; `price` for one and hour in thousandths, or None.
Offer = namedtuple("Offer", "more by mandatory last price")
# Ranks that begin, or how many `fewer` are to leave (unless it is `enforced`).
Agreed = namedtuple("Agreed", "more fewer enforced")


class Error(Exception):
    """What could not be done, in words; `number` as in `glean.h`."""

    def __init__(self, number, words):
        super().__init__(words)
        self.number = number


class Gone(Error):
    """What is waited for will never come: its rank has ended."""


class Deadlock(Error):
    """All ranks wait for each other."""


class Closed(Error):
    """The bag takes no more tasks."""


class NoProcessors(Error):
    """So many processors are not to be had now."""


class Retreated(Error):
    """The workstation is wanted back, and the work was returned: end."""


class Left(Error):
    """This rank has left."""


class Lost(Error):
    """The other ranks cannot be reached any more."""


_KINDS = {4: Gone, 5: Deadlock, 8: Closed, 9: NoProcessors, 10: Retreated, 11: Left, 13: Lost}


class _Alone(ctypes.Structure):
    _fields_ = [("ranks", ctypes.c_uint32), ("processors", ctypes.c_uint32)]


class _Message(ctypes.Structure):
    _fields_ = [
        ("source", ctypes.c_uint32), ("tag", ctypes.c_uint32),
        ("bytes", ctypes.c_size_t), ("data", ctypes.c_void_p),
    ]


class _Task(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64), ("bytes", ctypes.c_size_t), ("data", ctypes.c_void_p)]


class _Offer(ctypes.Structure):
    _fields_ = [
        ("more", ctypes.c_int), ("by", ctypes.c_uint32), ("mandatory", ctypes.c_int),
        ("last", ctypes.c_int), ("price", ctypes.c_int64),
    ]


class _Agreement(ctypes.Structure):
    _fields_ = [
        ("first", ctypes.c_uint32), ("more", ctypes.c_uint32), ("fewer", ctypes.c_uint32),
        ("enforced", ctypes.c_int),
    ]


_OnOffer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Offer), ctypes.c_void_p)
_Program = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def _load():
    name = "libglean_program.so"
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    path = os.environ.get("GLEAN_LIBRARY") or (beside if os.path.exists(beside) else name)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"{error}\n{name} is built by `cargo build --release -p gleaner-program-c`; "
            "put it beside glean.py, or name it in $GLEAN_LIBRARY"
        ) from None
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
    wide, integer, tag = ctypes.c_uint64, ctypes.c_int, ctypes.c_int64
    declared = {
        "run": [_Alone, _Program, pointer],
        "send": [pointer, number, number, ctypes.c_char_p, size],
        "recv": [pointer, tag, tag, pointer],
        "isend": [pointer, number, number, ctypes.c_char_p, size, pointer],
        "irecv": [pointer, tag, tag, pointer],
        "test": [pointer, pointer, pointer],
        "wait": [pointer, pointer, pointer],
        "withdraw": [pointer, pointer],
        "barrier": [pointer],
        "broadcast": [pointer, number, pointer, size],
        "reduce": [pointer, number, integer, integer, pointer, pointer, size],
        "allreduce": [pointer, integer, integer, pointer, pointer, size],
        "gather": [pointer, number, ctypes.c_char_p, size, pointer],
        "scatter": [pointer, number, ctypes.c_char_p, pointer, size],
        "alltoall": [pointer, ctypes.c_char_p, pointer, size],
        "add_task": [pointer, ctypes.c_char_p, size, pointer],
        "close_bag": [pointer],
        "next_task": [pointer, pointer],
        "done": [pointer, wide, ctypes.c_char_p, size],
        "return_task": [pointer, wide],
        "next_result": [pointer, pointer],
        "processors": [pointer, pointer],
        "spawn": [pointer, number, pointer],
        "join": [pointer, number, pointer],
        "leave": [pointer],
        "on_offer": [pointer, _OnOffer, pointer],
        "agreed": [pointer, pointer],
        "request_ranks": [pointer, number, pointer, pointer],
        "release_ranks": [pointer, number, pointer],
        "save": [pointer, ctypes.c_char_p, size],
        "boundary": [pointer],
        "restore": [pointer, pointer],
        "wants_state": [pointer, pointer],
        "on_retreat": [pointer, _Program, pointer],
        "heed": [pointer],
    }
    for name, arguments in declared.items():
        function = getattr(library, "glean_" + name)
        function.argtypes, function.restype = arguments, integer
    for name in ["rank", "size", "first", "members", "parent"]:
        function = getattr(library, "glean_" + name)
        function.argtypes, function.restype = [pointer], tag if name == "parent" else number
    library.glean_error.argtypes, library.glean_error.restype = [], ctypes.c_char_p
    for name in ["free", "free_task"]:
        function = getattr(library, "glean_" + name)
        function.argtypes, function.restype = [pointer], None
    return library


_library = _load()


def _words():
    return _library.glean_error().decode(errors="replace")


def _tried(number):
    if number != _OK:
        raise _KINDS.get(number, Error)(number, _words())


class Request:
    """A send or receive that was begun, and is ended by `wait` or `withdraw`."""

    def __init__(self, rank, pointer, receives):
        self._rank, self._pointer, self._receives = rank, pointer, receives

    def _take(self):
        pointer, self._pointer = self._pointer, None
        return pointer

    def test(self):
        """Would `wait` not wait?"""
        done = ctypes.c_int()
        self._rank._call("test", self._pointer, ctypes.byref(done))
        return bool(done.value)

    def wait(self):
        """Gives the message, if this is a receive."""
        if not self._receives:
            self._rank._call("wait", self._take(), None)
            return None
        return self._rank._message("wait", self._take())

    def withdraw(self):
        """Gives a receive up, and its message with it if that has come."""
        self._rank._call("withdraw", self._take())


class Rank:
    """One rank's way to the others; for the thread it was given to."""

    def __init__(self, pointer):
        self._pointer = pointer
        self._handlers = []

    def _call(self, name, *arguments):
        _tried(getattr(_library, "glean_" + name)(self._pointer, *arguments))

    def _number(self, name):
        return getattr(_library, "glean_" + name)(self._pointer)

    def _message(self, name, *arguments):
        message = _Message()
        self._call(name, *arguments, ctypes.byref(message))
        try:
            data = ctypes.string_at(message.data, message.bytes)
            return Message(message.source, message.tag, data)
        finally:
            _library.glean_free(ctypes.byref(message))

    def _task(self, name):
        task = _Task()
        number = getattr(_library, "glean_" + name)(self._pointer, ctypes.byref(task))
        if number == _NONE:
            return None
        _tried(number)
        try:
            return Task(task.id, ctypes.string_at(task.data, task.bytes))
        finally:
            _library.glean_free_task(ctypes.byref(task))

    # ---- who

    @property
    def number(self):
        """From 0 to `size - 1`."""
        return self._number("rank")

    @property
    def size(self):
        """How many ranks there are; more once some were spawned."""
        return self._number("size")

    @property
    def members(self):
        """The ranks that began together with this one."""
        first = self._number("first")
        return range(first, first + self._number("members"))

    @property
    def parent(self):
        """Who spawned them, or None."""
        parent = self._number("parent")
        return None if parent < 0 else parent

    # ---- messages

    def send(self, to, tag, data):
        """Waits at most until there is room on the way, never for the receiver."""
        data = bytes(data)
        self._call("send", to, tag, data, len(data))

    def recv(self, source=ANY, tag=ANY):
        return self._message("recv", source, tag)

    def isend(self, to, tag, data):
        data, request = bytes(data), ctypes.c_void_p()
        self._call("isend", to, tag, data, len(data), ctypes.byref(request))
        return Request(self, request, False)

    def irecv(self, source=ANY, tag=ANY):
        request = ctypes.c_void_p()
        self._call("irecv", source, tag, ctypes.byref(request))
        return Request(self, request, True)

    # ---- among all members, who call the same in the same order

    def barrier(self):
        self._call("barrier")

    def broadcast(self, root, data=b""):
        """The root's bytes, to all."""
        is_root = self.number == root
        data = bytes(data) if is_root else b""
        length = (ctypes.c_uint64 * 1)(len(data))
        self._call("broadcast", root, length, 8)
        room = ctypes.create_string_buffer(data, length[0] + 1)
        self._call("broadcast", root, room, length[0])
        return room.raw[: length[0]]

    @staticmethod
    def _array(values):
        values = list(values)
        whole = all(isinstance(value, int) for value in values)
        kind = ctypes.c_int64 if whole else ctypes.c_double
        return (kind * len(values))(*values), (_I64 if whole else _F64)

    def reduce(self, root, op, values):
        """Place by place; None for all but the root. All whole numbers, or all not."""
        array, kind = self._array(values)
        out = type(array)()
        self._call("reduce", root, kind, op, array, out, len(array))
        return list(out) if self.number == root else None

    def allreduce(self, op, values):
        array, kind = self._array(values)
        out = type(array)()
        self._call("allreduce", kind, op, array, out, len(array))
        return list(out)

    def gather(self, root, data):
        """Everybody's bytes, by rank; None for all but the root."""
        data = bytes(data)
        each = 8 + self.allreduce(MAX, [len(data)])[0]
        count = len(self.members)
        room = ctypes.create_string_buffer(each * count if self.number == root else 1)
        self._call("gather", root, _padded(data, each), each, room)
        return _parts(room.raw, each, count) if self.number == root else None

    def scatter(self, root, parts=()):
        """This rank's part of the root's."""
        longest = max((len(part) for part in parts), default=0)
        each = 8 + int.from_bytes(self.broadcast(root, longest.to_bytes(8, "little")), "little")
        is_root = self.number == root
        if is_root and len(parts) != len(self.members):
            raise ValueError(f"{len(parts)} parts for {len(self.members)} ranks")
        row = b"".join(_padded(bytes(part), each) for part in parts) if is_root else None
        room = ctypes.create_string_buffer(each)
        self._call("scatter", root, row, room, each)
        return _parts(room.raw, each, 1)[0]

    def alltoall(self, parts):
        """Each rank's part of everybody's; by sender."""
        count = len(self.members)
        if len(parts) != count:
            raise ValueError(f"{len(parts)} parts for {count} ranks")
        each = 8 + self.allreduce(MAX, [max(len(part) for part in parts)])[0]
        row = b"".join(_padded(bytes(part), each) for part in parts)
        room = ctypes.create_string_buffer(each * count)
        self._call("alltoall", row, room, each)
        return _parts(room.raw, each, count)

    # ---- a bag of tasks

    def add_task(self, data):
        data, number = bytes(data), ctypes.c_uint64()
        self._call("add_task", data, len(data), ctypes.byref(number))
        return number.value

    def close_bag(self):
        """No more tasks will be put in."""
        self._call("close_bag")

    def next_task(self):
        """None once the bag is closed and all of it is done."""
        return self._task("next_task")

    def tasks(self):
        """All that this rank gets."""
        return iter(self.next_task, None)

    def done(self, task, result=b""):
        result = bytes(result)
        self._call("done", task.id, result, len(result))

    def return_task(self, task):
        """Undone: the next that anybody gets."""
        self._call("return_task", task.id)

    def next_result(self):
        """A task's result, in the order they were done; None after the last."""
        return self._task("next_result")

    # ---- more and fewer ranks

    def processors(self):
        """How many more ranks could begin now."""
        count = ctypes.c_uint32()
        self._call("processors", ctypes.byref(count))
        return count.value

    def spawn(self, count):
        """They run the same program; gives their numbers."""
        first = ctypes.c_uint32()
        self._call("spawn", count, ctypes.byref(first))
        return range(first.value, first.value + count)

    def join(self, other):
        """Waits until that rank has ended; False if it failed."""
        well = ctypes.c_int()
        self._call("join", other, ctypes.byref(well))
        return bool(well.value)

    def leave(self):
        """Ends this rank's part before its function returns."""
        self._call("leave")

    # ---- what the program has

    def on_offer(self, handler):
        """Speaks for the program: `handler(offer)` runs inside this rank's calls
        and gives how many of `offer.by` processors it takes or gives, or that and
        a price; 0 or None declines. `agreed` says what came of it."""
        def call(pointer, _argument):
            try:
                offer = pointer.contents
                price = None if offer.price < 0 else offer.price
                answer = handler(Offer(
                    bool(offer.more), offer.by, bool(offer.mandatory), bool(offer.last), price
                ))
                if isinstance(answer, tuple):
                    answer, price = answer
                    offer.price = -1 if price is None else price
                offer.by = answer or 0
                return _OK if answer else _PROGRAM
            except Exception:
                traceback.print_exc()
                return _PROGRAM

        self._handlers.append(_OnOffer(call))
        self._call("on_offer", self._handlers[-1], None)

    def agreed(self):
        """What was agreed since this was asked last, or None."""
        agreement = _Agreement()
        number = _library.glean_agreed(self._pointer, ctypes.byref(agreement))
        if number == _NONE:
            return None
        _tried(number)
        more = range(agreement.first, agreement.first + agreement.more)
        return Agreed(more, agreement.fewer, bool(agreement.enforced))

    def request(self, count):
        """Asks for more ranks; gives those that begin, perhaps none."""
        first, more = ctypes.c_uint32(), ctypes.c_uint32()
        self._call("request_ranks", count, ctypes.byref(first), ctypes.byref(more))
        return range(first.value, first.value + more.value)

    def release(self, count):
        """Says that so many ranks leave soon; gives how many are counted on."""
        counted = ctypes.c_uint32()
        self._call("release_ranks", count, ctypes.byref(counted))
        return counted.value

    # ---- moving

    def save(self, state):
        """Keeps this rank's state, at the end of a subtask."""
        state = bytes(state)
        self._call("save", state, len(state))

    def boundary(self):
        """Marks the end of a subtask, if nothing is saved: where this rank may
        go back, an image of its process is taken here now and then."""
        self._call("boundary")

    def restore(self):
        """What was saved last, if this rank is begun again; else None. Once."""
        try:
            return self._message("restore").data
        except Error as error:
            if error.number == _NONE:
                return None
            raise

    def wants_state(self):
        """Is the state wanted now, for a checkpoint of the whole program?"""
        wanted = ctypes.c_int()
        self._call("wants_state", ctypes.byref(wanted))
        return bool(wanted.value)

    def heed(self):
        """Takes in what has come: for a rank that computes for long."""
        self._call("heed")

    def on_retreat(self, handler):
        """`handler(rank)` runs inside the next call when the workstation is wanted back."""
        def call(_pointer, _argument):
            try:
                handler(self)
                return _OK
            except Error as error:
                return error.number
            except BaseException:
                traceback.print_exc()
                return _PROGRAM

        self._handlers.append(_Program(call))
        self._call("on_retreat", self._handlers[-1], None)


def _padded(data, length):
    return (len(data).to_bytes(8, "little") + data).ljust(length, b"\0")


def _parts(row, each, count):
    parts = []
    for start in range(0, each * count, each):
        length = int.from_bytes(row[start : start + 8], "little")
        parts.append(row[start + 8 : start + 8 + length])
    return parts


def run(program, ranks=1, processors=0):
    """Runs `program(rank)`: as a job this process's own rank, otherwise `ranks`
    of them, with `processors` more to be spawned. Raises what failed first."""
    failures, lock = [], threading.Lock()

    def call(pointer, _argument):
        try:
            program(Rank(pointer))
            return _OK
        except Retreated:
            return _RETREATED
        except BaseException as error:
            with lock:
                failures.append(error)
            return error.number if isinstance(error, Error) else _PROGRAM

    number = _library.glean_run(_Alone(ranks, processors), _Program(call), None)
    if number == _OK:
        return
    words = _words()
    own = [error for error in failures if not isinstance(error, (Gone, Deadlock, Lost))]
    for error in own + failures:
        raise error
    raise Error(number, words)


if __name__ == "__main__":
    print(__doc__)
    sys.exit(2)
