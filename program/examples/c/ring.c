/* A message round a ring, and every operation of the group, in C.
 *
 *     make -C program/examples/c && ./ring 5          all ranks in this process
 *     glean submit --ranks 5 --input libglean_program.so --wait -- ./ring
 */
#include <glean.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 64

/* Gives the error on if there is one. */
#define TRY(call)                  \
    do {                           \
        int tried = (call);        \
        if (tried != GLEAN_OK)     \
            return tried;          \
    } while (0)

#define WRONG 100
#define CHECK(true)                                                              \
    do {                                                                         \
        if (!(true)) {                                                           \
            fprintf(stderr, "ring: wrong answer in line %d: %s\n", __LINE__, #true); \
            return WRONG;                                                        \
        }                                                                        \
    } while (0)

static int round_the_ring(glean *rank)
{
    uint32_t me = glean_rank(rank), size = glean_size(rank);
    uint32_t right = (me + 1) % size, left = (me + size - 1) % size;
    glean_request *sent, *received;
    glean_message message;
    uint32_t number = me;
    int done;

    for (uint32_t step = 0; step < size; step++) {
        TRY(glean_irecv(rank, left, 7, &received));
        TRY(glean_isend(rank, right, 7, &number, sizeof number, &sent));
        TRY(glean_test(rank, sent, &done));
        TRY(glean_wait(rank, sent, NULL));
        TRY(glean_wait(rank, received, &message));
        CHECK(message.from == left && message.tag == 7 && message.bytes == sizeof number);
        memcpy(&number, message.data, sizeof number);
        glean_free(&message);
    }
    CHECK(number == me); /* It has come back. */
    return GLEAN_OK;
}

static int among_all(glean *rank)
{
    uint32_t me = glean_rank(rank), size = glean_members(rank);
    int64_t all = (int64_t)size * (size - 1) / 2;
    int64_t mine = me, sum = -1;
    double half = me / 2.0, largest = -1;
    uint32_t parts[RANKS_MAX], got[RANKS_MAX], part = 0;
    char word[16] = "";

    CHECK(size <= RANKS_MAX);
    TRY(glean_barrier(rank));
    if (me == 0)
        strcpy(word, "gleaned");
    TRY(glean_broadcast(rank, 0, word, sizeof word));
    CHECK(strcmp(word, "gleaned") == 0);
    TRY(glean_reduce(rank, 0, GLEAN_I64, GLEAN_SUM, &mine, &sum, 1));
    CHECK(me == 0 ? sum == all : sum == -1);
    TRY(glean_allreduce(rank, GLEAN_F64, GLEAN_MAX, &half, &largest, 1));
    CHECK(largest == (size - 1) / 2.0);
    TRY(glean_gather(rank, 0, &me, sizeof me, got));
    for (uint32_t i = 0; i < size && me == 0; i++) {
        CHECK(got[i] == i);
        parts[i] = 10 * i;
    }
    TRY(glean_scatter(rank, 0, parts, &part, sizeof part));
    CHECK(part == 10 * me);
    for (uint32_t i = 0; i < size; i++)
        parts[i] = 100 * me + i;
    TRY(glean_alltoall(rank, parts, got, sizeof parts[0]));
    for (uint32_t i = 0; i < size; i++)
        CHECK(got[i] == 100 * i + me);
    return GLEAN_OK;
}

static int errors(glean *rank)
{
    glean_message message;

    CHECK(glean_send(rank, 9999, 1, "", 0) == GLEAN_RANK);
    CHECK(strstr(glean_error(), "rank 9999 of ") == glean_error());
    CHECK(glean_send(rank, 0, UINT32_MAX, "", 0) == GLEAN_TAG);
    CHECK(glean_recv(rank, glean_rank(rank), 1, &message) == GLEAN_DEADLOCK);
    CHECK(glean_recv(rank, GLEAN_ANY, GLEAN_ANY, NULL) == GLEAN_ARGUMENT);
    CHECK(glean_barrier(NULL) == GLEAN_ARGUMENT);
    CHECK(glean_restore(rank, &message) == GLEAN_NONE);
    return GLEAN_OK;
}

static int program(glean *rank, void *argument)
{
    (void)argument;
    if (glean_size(rank) > 1)
        TRY(round_the_ring(rank));
    TRY(among_all(rank));
    TRY(errors(rank));
    if (glean_rank(rank) == 0)
        printf("ring: answer ok: round %u ranks\n", glean_size(rank));
    return GLEAN_OK;
}

int main(int argc, char **argv)
{
    glean_alone alone = {.ranks = argc > 1 ? (uint32_t)atoi(argv[1]) : 5, .processors = 0};
    int failed = glean_run(alone, program, NULL);

    if (failed)
        fprintf(stderr, "ring: %s\n", glean_error());
    return failed;
}
