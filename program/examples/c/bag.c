/* Primes by a bag of tasks, in C: rank 0 puts in ranges of numbers, whoever is
 * free counts the primes in one. Who is asked to retreat gives its range back;
 * rank 0 saves what it has, so that it can be begun again there. With `spawn`,
 * rank 0 begins alone and spawns as many workers as it can have. With
 * `malleable` it asks for some, takes more when they are offered, and sends
 * workers away when processors are wanted back.
 *
 *     ./bag 5          all ranks in this process
 *     glean submit --ranks 5 --on-busy retreat --input libglean_program.so --wait -- ./bag
 *     glean submit --ranks 1 --ranks-max 9 --spawns --input libglean_program.so --wait -- ./bag spawn
 *     glean submit --ranks 1 --ranks-max 9 --grows --input libglean_program.so --wait -- ./bag malleable
 */
#include <glean.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT 200000u
#define RANGE 5000u
#define PRIMES 17984u /* below LIMIT */

#define TRY(call)              \
    do {                       \
        int tried = (call);    \
        if (tried != GLEAN_OK) \
            return tried;      \
    } while (0)

/* What rank 0 has, and saves. */
struct sum {
    uint32_t put, done, primes;
};

static int is_prime(uint32_t n)
{
    if (n < 2)
        return 0;
    for (uint32_t d = 2; d * d <= n; d++)
        if (n % d == 0)
            return 0;
    return 1;
}

/* How the program comes to its workers. */
enum mode { FIXED, SPAWNS, MALLEABLE };

#define WORKERS 8u
#define LEAVE 1u

/* Who works, as far as rank 0 has begun or was offered them. */
struct team {
    uint32_t ranks[64], count;
};

/* Up to WORKERS of what is offered, and any of what is wanted back. */
static int answer(glean_offer *offer, void *argument)
{
    const struct team *team = argument;
    uint32_t room = team->count < WORKERS ? WORKERS - team->count : 0;
    uint32_t most = offer->more ? room : team->count;

    if (offer->by > most)
        offer->by = most;
    return offer->by > 0 ? GLEAN_OK : GLEAN_DECLINED;
}

static void join(struct team *team, uint32_t first, uint32_t more)
{
    for (uint32_t rank = first; rank < first + more; rank++)
        if (team->count < sizeof team->ranks / sizeof *team->ranks)
            team->ranks[team->count++] = rank;
}

/* Does what was agreed since. */
static int adapt(glean *rank, struct team *team)
{
    glean_agreement agreed;
    int got;

    while ((got = glean_agreed(rank, &agreed)) == GLEAN_OK) {
        join(team, agreed.first, agreed.more);
        while (!agreed.enforced && agreed.fewer > 0 && team->count > 0) {
            TRY(glean_send(rank, team->ranks[--team->count], LEAVE, NULL, 0));
            agreed.fewer--;
        }
    }
    return got == GLEAN_NONE ? GLEAN_OK : got;
}

static int host(glean *rank, enum mode mode)
{
    struct sum sum = {0, 0, 0};
    struct team team = {{0}, 0};
    glean_message state;
    glean_task result;
    uint32_t processors, first, found;
    int got = glean_restore(rank, &state);

    if (got == GLEAN_OK) {
        memcpy(&sum, state.data, sizeof sum);
        glean_free(&state);
    } else if (got != GLEAN_NONE) {
        return got;
    }
    for (; sum.put < LIMIT / RANGE; sum.put++)
        TRY(glean_add_task(rank, &sum.put, sizeof sum.put, NULL));
    TRY(glean_save(rank, &sum, sizeof sum));
    if (mode == SPAWNS) {
        TRY(glean_processors(rank, &processors));
        TRY(glean_spawn(rank, processors, &first));
    } else if (mode == MALLEABLE) {
        TRY(glean_on_offer(rank, answer, &team));
        TRY(glean_request_ranks(rank, WORKERS / 4, &first, &processors));
        join(&team, first, processors);
    }
    while (sum.done < LIMIT / RANGE) {
        TRY(adapt(rank, &team));
        TRY(glean_next_result(rank, &result));
        memcpy(&found, result.data, sizeof found);
        glean_free_task(&result);
        sum.primes += found;
        sum.done++;
        TRY(glean_save(rank, &sum, sizeof sum));
    }
    TRY(glean_close_bag(rank));
    if (sum.primes != PRIMES) {
        fprintf(stderr, "bag: wrong answer: %u primes\n", sum.primes);
        return 100;
    }
    printf("bag: answer ok: %u primes below %u\n", sum.primes, LIMIT);
    return GLEAN_OK;
}

struct hand {
    int full;
    uint64_t id;
};

static int give_back(glean *rank, void *argument)
{
    struct hand *hand = argument;

    return hand->full ? glean_return_task(rank, hand->id) : GLEAN_OK;
}

static int work(glean *rank)
{
    struct hand hand = {0, 0};
    glean_request *leave;
    glean_task task;
    int got, wanted_back = 0;

    TRY(glean_on_retreat(rank, give_back, &hand));
    TRY(glean_irecv(rank, 0, LEAVE, &leave));
    while ((got = glean_next_task(rank, &task)) == GLEAN_OK) {
        uint32_t range, primes = 0;

        memcpy(&range, task.data, sizeof range);
        hand.id = task.id;
        hand.full = 1;
        glean_free_task(&task);
        for (uint32_t n = range * RANGE; n < (range + 1) * RANGE; n++) {
            primes += is_prime(n);
            if (n % 1000 == 0)
                TRY(glean_heed(rank)); /* The owner may be back. */
        }
        TRY(glean_done(rank, hand.id, &primes, sizeof primes));
        hand.full = 0;
        TRY(glean_test(rank, leave, &wanted_back));
        if (wanted_back)
            break;
    }
    if (got != GLEAN_OK && got != GLEAN_NONE)
        return got;
    TRY(glean_withdraw(rank, leave));
    return glean_parent(rank) >= 0 ? glean_leave(rank) : GLEAN_OK;
}

static int program(glean *rank, void *argument)
{
    return glean_rank(rank) == 0 ? host(rank, *(enum mode *)argument) : work(rank);
}

int main(int argc, char **argv)
{
    int spawns = argc > 1 && strcmp(argv[1], "spawn") == 0;
    int malleable = argc > 1 && strcmp(argv[1], "malleable") == 0;
    enum mode mode = spawns ? SPAWNS : malleable ? MALLEABLE : FIXED;
    glean_alone alone = {
        .ranks = mode != FIXED ? 1 : argc > 1 ? (uint32_t)atoi(argv[1]) : 5,
        .processors = mode != FIXED ? 4 : 0,
    };
    int failed = glean_run(alone, program, &mode);

    if (failed)
        fprintf(stderr, "bag: %s\n", glean_error());
    return failed;
}
