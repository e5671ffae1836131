/* glean.h: what a rank of a message-passing program says to the others, in C.
 *
 * Messages are addressed to ranks, never to machines. Between two ranks, those
 * of one tag arrive once and in the order they were sent, however often either
 * rank is moved meanwhile.
 *
 * As a job (`glean submit --ranks 5 -- ./program`), each process is one rank.
 * Run by itself, all ranks are threads of the one process: then the program
 * must not keep its state in global variables.
 *
 *     cc -o ring ring.c -lglean_program
 *
 * Every function that can fail gives GLEAN_OK or an error; glean_error() says
 * in words what the last one on this thread was. Nothing here ends the process,
 * and a rank is used by the thread it was given to and no other.
 */
#ifndef GLEAN_H
#define GLEAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GLEAN_OK = 0,
    /* There is none: no more tasks, no more results, no saved state. */
    GLEAN_NONE = 1,
    /* No such rank, or it is not of these; no such tag. */
    GLEAN_RANK = 2,
    GLEAN_TAG = 3,
    /* What is waited for will never come: its rank has ended. */
    GLEAN_GONE = 4,
    /* All ranks wait for each other. */
    GLEAN_DEADLOCK = 5,
    /* Not as many bytes or values as expected. */
    GLEAN_LENGTH = 6,
    /* Not given any more: whoever does a task, its work is kept. */
    GLEAN_TASK = 7,
    /* The bag takes no more. */
    GLEAN_CLOSED = 8,
    /* So many processors are not to be had now. */
    GLEAN_PROCESSORS = 9,
    /* The workstation is wanted back, and the work was returned: end. */
    GLEAN_RETREATED = 10,
    /* This rank has left. */
    GLEAN_LEFT = 11,
    /* The coordinator said no. */
    GLEAN_DECLINED = 12,
    /* The other ranks cannot be reached any more. */
    GLEAN_LOST = 13,
    /* A null pointer, an unknown type or operation. */
    GLEAN_ARGUMENT = 14,
    /* The program's function gave an error of its own. */
    GLEAN_PROGRAM = 15,
    /* A fault of this library. */
    GLEAN_FAULT = 16
};

/* What went wrong last on this thread; "" if nothing did. Until the next call. */
const char *glean_error(void);

/* ---- a program ---------------------------------------------------------- */

/* One rank's way to the others. */
typedef struct glean glean;

/* How to run a program that no agent runs. */
typedef struct {
    uint32_t ranks;      /* that begin with it */
    uint32_t processors; /* how many more may be spawned */
} glean_alone;

/* Runs `program`: as a job this process's own rank, otherwise all of them. It
 * gives GLEAN_OK, or any other number if it has failed. A rank that retreats
 * has not failed. */
int glean_run(glean_alone alone, int (*program)(glean *, void *), void *argument);

/* 0 .. size - 1. The size grows when ranks are spawned. */
uint32_t glean_rank(const glean *rank);
uint32_t glean_size(const glean *rank);
/* The ranks that began together with this one: so many from the first on. All
 * collective operations are among them. */
uint32_t glean_first(const glean *rank);
uint32_t glean_members(const glean *rank);
/* Who spawned them, or -1. */
int64_t glean_parent(const glean *rank);

/* ---- messages ----------------------------------------------------------- */

/* Any sender, or any tag. */
#define GLEAN_ANY ((int64_t)-1)
#define GLEAN_TAG_MAX 0x7fffffffu

typedef struct {
    uint32_t from;
    uint32_t tag;
    size_t bytes;
    void *data; /* aligned for everything; give it back with glean_free */
} glean_message;

void glean_free(glean_message *message);

/* Waits at most until there is room on the way, never for the receiver. */
int glean_send(glean *rank, uint32_t to, uint32_t tag, const void *data, size_t bytes);
int glean_recv(glean *rank, int64_t from, int64_t tag, glean_message *message);

/* A send or receive that was begun. */
typedef struct glean_request glean_request;

/* The data may be used again at once: it is copied. */
int glean_isend(glean *rank, uint32_t to, uint32_t tag, const void *data, size_t bytes,
                glean_request **request);
int glean_irecv(glean *rank, int64_t from, int64_t tag, glean_request **request);
/* Would glean_wait not wait? */
int glean_test(glean *rank, const glean_request *request, int *done);
/* Ends the request, also where it fails. `message` may be null for a send. */
int glean_wait(glean *rank, glean_request *request, glean_message *message);
/* Gives a receive up, and its message with it if that has come. */
int glean_withdraw(glean *rank, glean_request *request);

/* ---- among all members, who call the same in the same order --------------- */

typedef enum {
    GLEAN_I32 = 0,
    GLEAN_U32 = 1,
    GLEAN_I64 = 2,
    GLEAN_U64 = 3,
    GLEAN_F32 = 4,
    GLEAN_F64 = 5
} glean_type;

typedef enum { GLEAN_SUM = 0, GLEAN_PRODUCT = 1, GLEAN_MIN = 2, GLEAN_MAX = 3 } glean_op;

int glean_barrier(glean *rank);
/* The root's bytes to all; everybody says how many. */
int glean_broadcast(glean *rank, uint32_t root, void *data, size_t bytes);
/* Place by place; the result is the root's, or everybody's. Whole numbers wrap. */
int glean_reduce(glean *rank, uint32_t root, glean_type type, glean_op op, const void *in,
                 void *out, size_t count);
int glean_allreduce(glean *rank, glean_type type, glean_op op, const void *in, void *out,
                    size_t count);
/* So many bytes of each member, in their order. The long one is the root's only. */
int glean_gather(glean *rank, uint32_t root, const void *in, size_t bytes, void *all);
int glean_scatter(glean *rank, uint32_t root, const void *all, void *out, size_t bytes);
int glean_alltoall(glean *rank, const void *in, void *out, size_t bytes);

/* ---- a bag of tasks ------------------------------------------------------- */

typedef struct {
    uint64_t id;
    size_t bytes;
    void *data; /* give it back with glean_free_task */
} glean_task;

void glean_free_task(glean_task *task);

/* `id` may be null. */
int glean_add_task(glean *rank, const void *data, size_t bytes, uint64_t *id);
/* No more will be put in. */
int glean_close_bag(glean *rank);
/* GLEAN_NONE once the bag is closed and all of it is done. */
int glean_next_task(glean *rank, glean_task *task);
int glean_done(glean *rank, uint64_t id, const void *result, size_t bytes);
/* Undone: the next that anybody gets. */
int glean_return_task(glean *rank, uint64_t id);
/* The next result, with its task's id; GLEAN_NONE after the last. */
int glean_next_result(glean *rank, glean_task *result);

/* ---- more and fewer ranks ------------------------------------------------- */

/* How many more could begin now. */
int glean_processors(glean *rank, uint32_t *processors);
/* They run the same program; `first` is the first of them. */
int glean_spawn(glean *rank, uint32_t count, uint32_t *first);
/* Waits until a rank has ended. `well`, which may be null: did it return, leave
 * or retreat, or did it fail? */
int glean_join(glean *rank, uint32_t other, int *well);
/* Ends this rank's part before its function returns. */
int glean_leave(glean *rank);

/* ---- what the program has ------------------------------------------------- */

/* What the program is offered (`more`) or asked to give. */
typedef struct {
    int more;
    uint32_t by;   /* so many processors */
    int mandatory; /* it is done to the program, if the program does not do it */
    int last;      /* only yes or no is left to say */
    int64_t price; /* for one and hour, in thousandths; -1: nothing is paid */
} glean_offer;

/* Speaks for the program from now on: the handler is called inside this rank's
 * calls. It gives GLEAN_OK for what then stands in `offer`, where `by` and
 * `price` may be others than before: a counter-offer; anything else declines.
 * What was agreed in the end, glean_agreed says. */
int glean_on_offer(glean *rank, int (*handler)(glean_offer *, void *), void *argument);

/* What was agreed: `more` ranks from `first` on begin, or so many `fewer` are to
 * leave soon, unless that is `enforced`: then their processors are being taken. */
typedef struct {
    uint32_t first, more, fewer;
    int enforced;
} glean_agreement;

/* What was agreed since this was asked last; GLEAN_NONE: nothing. */
int glean_agreed(glean *rank, glean_agreement *agreement);
/* Asks for so many more ranks, and takes what can be had of that: `more` from
 * `first` on, perhaps none. */
int glean_request_ranks(glean *rank, uint32_t count, uint32_t *first, uint32_t *more);
/* Says that so many ranks are to leave soon; `counted`, which may be null: how
 * many are counted on, since one has to stay. */
int glean_release_ranks(glean *rank, uint32_t count, uint32_t *counted);

/* ---- moving --------------------------------------------------------------- */

/* Keeps the state of this rank in place of what it saved before; at the end of
 * a subtask. */
int glean_save(glean *rank, const void *state, size_t bytes);
/* Marks the end of a subtask, in a program that does not save: where it may go
 * back, an image of its process is taken here now and then. */
int glean_boundary(glean *rank);
/* What it saved last, if it is begun again: GLEAN_NONE if not. Once; give it
 * back with glean_free. */
int glean_restore(glean *rank, glean_message *state);
/* Is the state wanted now, for a checkpoint of the whole program? */
int glean_wants_state(glean *rank, int *wanted);
/* What to do when the workstation is wanted back: it is called inside this
 * rank's next call, or the one that waits; may hand in what is done and put
 * what is left into the bag. Afterwards all calls give GLEAN_RETREATED. */
int glean_on_retreat(glean *rank, int (*handler)(glean *, void *), void *argument);
/* Takes in what has come, and does nothing else: for a rank that computes for
 * long, so that it hears of a retreat in time. */
int glean_heed(glean *rank);

#ifdef __cplusplus
}
#endif
#endif
