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
    unsigned generation; /* of the batch; a worker runs each generation once */
    int running;         /* workers that have not finished the current generation */
    bool stop;
    df_task_fn fn;
    void *context;
    int tasks;
    atomic_int next;
};

static void run_tasks(df_pool *pool, int index) {
    for (;;) {
        const int task = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (task >= pool->tasks) return;
        pool->fn(pool->context, task, index);
    }
}

static void *worker_main(void *argument) {
    worker *self = argument;
    df_pool *pool = self->pool;
    unsigned seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->stop && pool->generation == seen) pthread_cond_wait(&pool->wake, &pool->lock);
        if (pool->stop) break;
        seen = pool->generation;
        pthread_mutex_unlock(&pool->lock);
        run_tasks(pool, self->index);
        pthread_mutex_lock(&pool->lock);
        if (--pool->running == 0) pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
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
                    "Thread %d of %d could not be started: %s. Ask for fewer threads or raise the process limit.", i + 1,
                    pool->threads, strerror(failure));
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
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
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
    pthread_mutex_lock(&pool->lock);
    pool->fn = fn;
    pool->context = context;
    pool->tasks = tasks;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    pool->running = pool->started;
    pool->generation++;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    run_tasks(pool, 0);
    pthread_mutex_lock(&pool->lock);
    while (pool->running > 0) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
