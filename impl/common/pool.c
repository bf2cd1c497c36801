/* pool.c - see pool.h. */
#include "common/pool.h"

#include "common/processors.h"
#include "common/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct worker {
    df_pool *pool;
    pthread_t thread;
    int index;
} worker;

/*
 * A batch is announced by its ticket: the batch's number in the high half, tasks not yet claimed in the low half. A
 * task is claimed by taking one from a ticket that still has some, so a claim is always of the batch that the fields
 * describe, and the batch cannot end before the claimed task has. A worker that is not scheduled in time claims nothing
 * and holds nobody up.
 */
struct df_pool {
    int threads;
    int started; /* threads beside the caller's */
    worker *workers;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    atomic_ullong ticket;
    atomic_int pending;  /* tasks of the batch that have not finished */
    atomic_int sleeping; /* workers that wait on `wake` */
    atomic_bool waiting; /* the caller waits on `done` */
    atomic_bool stop;
    df_task_fn fn; /* the batch; written before its ticket */
    void *context;
    int tasks;
};

/* A forward is a hundred short batches, and waking a sleeper takes as long as a small one. So both sides look for some
 * tens of microseconds before they sleep. */
enum { SPINS = 4000 };

static void breathe(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static unsigned unclaimed(unsigned long long ticket) { return (unsigned)(ticket & 0xffffffffu); }

/* Claims a task of the batch in progress; -1 when there is none to claim. */
static int claim(df_pool *pool) {
    unsigned long long ticket = atomic_load(&pool->ticket);
    while (unclaimed(ticket) > 0)
        if (atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket - 1))
            return pool->tasks - (int)unclaimed(ticket);
    return -1;
}

static void run_tasks(df_pool *pool, int index) {
    for (int task = claim(pool); task >= 0; task = claim(pool)) {
        pool->fn(pool->context, task, index);
        if (atomic_fetch_sub(&pool->pending, 1) > 1 || !atomic_load(&pool->waiting)) continue;
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
}

static bool has_news(df_pool *pool) { return unclaimed(atomic_load(&pool->ticket)) > 0 || atomic_load(&pool->stop); }

/* Returns when there is a task to claim, or the pool ends. A worker that goes to sleep says so before it looks for the
 * last time, and the caller announces before it looks for sleepers, so one of the two notices the other. */
static void wait_for_news(df_pool *pool) {
    for (int look = 0; look < SPINS; look++) {
        if (has_news(pool)) return;
        breathe();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleeping, 1);
    while (!has_news(pool)) pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleeping, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void wake_sleepers(df_pool *pool) {
    if (atomic_load(&pool->sleeping) == 0) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *argument) {
    worker *self = argument;
    while (wait_for_news(self->pool), !atomic_load(&self->pool->stop)) run_tasks(self->pool, self->index);
    return NULL;
}

/* The same handshake the other way: the caller says that it waits before it looks for the last time. */
static void wait_for_tasks(df_pool *pool) {
    for (int look = 0; look < SPINS; look++) {
        if (atomic_load(&pool->pending) == 0) return;
        breathe();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->waiting, true);
    while (atomic_load(&pool->pending) > 0) pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->waiting, false);
    pthread_mutex_unlock(&pool->lock);
}

dflash_status df_pool_create(int threads, df_pool **out, dflash_error *err) {
    *out = NULL;
    df_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return df_fail_memory(err, "the thread pool", sizeof *pool);
    const size_t count = (size_t)(threads > 0 ? threads : df_usable_processors());
    pool->threads = (int)count;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->workers = calloc(count, sizeof *pool->workers);
    if (pool->workers == NULL) {
        df_pool_destroy(pool);
        return df_fail_memory(err, "the thread pool", count * sizeof *pool->workers);
    }
    for (int i = 1; i < pool->threads; i++) {
        worker *w = &pool->workers[i];
        *w = (worker){.pool = pool, .index = i};
        const int failure = pthread_create(&w->thread, NULL, worker_main, w);
        if (failure != 0) {
            df_fail(err, DFLASH_ERR_MEMORY, "threads.create",
                    "Thread %d of %d could not be started: %s. Ask for fewer threads or raise the process limit.",
                    i + 1, pool->threads, strerror(failure));
            df_pool_destroy(pool);
            return DFLASH_ERR_MEMORY;
        }
        pool->started++;
    }
    *out = pool;
    return DFLASH_OK;
}

void df_pool_destroy(df_pool *pool) {
    if (pool == NULL) return;
    atomic_store(&pool->stop, true);
    wake_sleepers(pool);
    for (int i = 1; i <= pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool->workers);
    free(pool);
}

int df_pool_threads(const df_pool *pool) { return pool->threads; }

void df_pool_run(df_pool *pool, df_task_fn fn, void *context, int tasks) {
    if (tasks <= 0) return;
    if (pool->started == 0 || tasks == 1) {
        for (int task = 0; task < tasks; task++) fn(context, task, 0);
        return;
    }
    pool->fn = fn;
    pool->context = context;
    pool->tasks = tasks;
    atomic_store(&pool->pending, tasks);
    const unsigned long long batch = (atomic_load(&pool->ticket) >> 32) + 1;
    atomic_store(&pool->ticket, batch << 32 | (unsigned)tasks);
    wake_sleepers(pool);
    run_tasks(pool, 0);
    wait_for_tasks(pool);
}
