/* pool.c - see pool.h. */
#include "pool.h"

#include "error.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct worker {
    df_pool *pool;
    pthread_t thread;
    int index;
} worker;

struct df_pool {
    int threads;
    int started; /* threads beside the caller's */
    worker *workers;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    atomic_uint generation; /* of the batch; a worker runs each generation once */
    atomic_int running;     /* workers that have not finished the current generation */
    atomic_int sleeping;    /* workers that wait on `wake` */
    atomic_bool stop;
    df_task_fn fn; /* the batch; written before its generation is announced */
    void *context;
    int tasks;
    atomic_int next;
};

/* A forward is a hundred short batches, and waking a sleeper takes as long as a small one. So both sides look for a
 * while, some tens of microseconds, before they sleep. */
enum { LOOKS = 4000 };

static void breathe(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void run_tasks(df_pool *pool, int index) {
    for (;;) {
        const int task = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (task >= pool->tasks) return;
        pool->fn(pool->context, task, index);
    }
}

static bool has_news(df_pool *pool, unsigned seen) {
    return atomic_load(&pool->generation) != seen || atomic_load(&pool->stop);
}

/* Returns when there is a generation after `seen`, or the pool ends. A worker that goes to sleep says so before it
 * looks for the last time, and the caller announces before it looks for sleepers, so one of the two notices the other.
 */
static void wait_for_news(df_pool *pool, unsigned seen) {
    for (int look = 0; look < LOOKS; look++) {
        if (has_news(pool, seen)) return;
        breathe();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleeping, 1);
    while (!has_news(pool, seen)) pthread_cond_wait(&pool->wake, &pool->lock);
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
    df_pool *pool = self->pool;
    unsigned seen = 0;
    for (;;) {
        wait_for_news(pool, seen);
        if (atomic_load(&pool->stop)) return NULL;
        seen = atomic_load(&pool->generation);
        run_tasks(pool, self->index);
        if (atomic_fetch_sub(&pool->running, 1) > 1) continue;
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void wait_for_workers(df_pool *pool) {
    for (int look = 0; look < LOOKS; look++) {
        if (atomic_load(&pool->running) == 0) return;
        breathe();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->running) > 0) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

static int usable_cpus(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return 1;
}

df_status df_pool_create(int threads, df_pool **out, df_error *err) {
    *out = NULL;
    df_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return df_fail_memory(err, "the thread pool", sizeof *pool);
    pool->threads = threads > 0 ? threads : usable_cpus();
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->workers = calloc((size_t)pool->threads, sizeof *pool->workers);
    if (pool->workers == NULL) {
        df_pool_destroy(pool);
        return df_fail_memory(err, "the thread pool", (size_t)threads * sizeof *pool->workers);
    }
    for (int i = 1; i < pool->threads; i++) {
        worker *w = &pool->workers[i];
        *w = (worker){.pool = pool, .index = i};
        const int failure = pthread_create(&w->thread, NULL, worker_main, w);
        if (failure != 0) {
            df_fail(err, DF_ERR_MEMORY, "threads.create",
                    "Thread %d of %d could not be started: %s. Ask for fewer threads or raise the process limit.",
                    i + 1, pool->threads, strerror(failure));
            df_pool_destroy(pool);
            return DF_ERR_MEMORY;
        }
        pool->started++;
    }
    *out = pool;
    return DF_OK;
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
    atomic_store(&pool->next, 0);
    atomic_store(&pool->running, pool->started);
    atomic_fetch_add(&pool->generation, 1);
    wake_sleepers(pool);
    run_tasks(pool, 0);
    wait_for_workers(pool);
}
