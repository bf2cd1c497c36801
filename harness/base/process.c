/* process.c - see process.h. */
#include "base/process.h"

#include "common/error.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CANNOT_RUN = 127, PATIENCE = 200 /* looks at a program that was told to end, before it is killed */ };
static const struct timespec pause_between = {.tv_nsec = 10 * 1000 * 1000};

/* ---- Interruptions ---- */

static const int interruptions[] = {SIGINT, SIGTERM, SIGHUP};
enum { INTERRUPTIONS = sizeof interruptions / sizeof *interruptions };
static volatile sig_atomic_t interrupted;
static struct sigaction before[INTERRUPTIONS];
static sigset_t mask_before;

static void remember(int number) { interrupted = number; }

void dp_interruptions_begin(void) {
    sigset_t ours;
    interrupted = 0;
    sigemptyset(&ours);
    for (int i = 0; i < INTERRUPTIONS; i++) sigaddset(&ours, interruptions[i]);
    for (int i = 0; i < INTERRUPTIONS; i++) {
        struct sigaction action = {.sa_handler = remember};
        sigemptyset(&action.sa_mask);
        sigaction(interruptions[i], &action, &before[i]);
    }
    sigprocmask(SIG_UNBLOCK, &ours, &mask_before); /* whoever started us may have blocked them */
}

void dp_interruptions_end(void) {
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
    for (int i = 0; i < INTERRUPTIONS; i++) sigaction(interruptions[i], &before[i], NULL);
}

bool dp_interrupted(void) { return interrupted != 0; }

/* ---- Programs ---- */

/* In the child: a stream goes to a file that both may share, so it appends. */
static bool redirect(int stream, const char *path) {
    const int fd = open(path != NULL ? path : "/dev/null", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return fd >= 0 && dup2(fd, stream) >= 0;
}

/* A program starts with signals as a program expects them, whatever we were started with: one that ignores SIGCHLD
 * cannot learn how its own children ended, and one that blocks SIGTERM cannot be told to end. */
static void reset_signals(void) {
    static const int others[] = {SIGCHLD, SIGPIPE};
    sigset_t none;
    for (int i = 0; i < INTERRUPTIONS; i++) signal(interruptions[i], SIG_DFL);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) signal(others[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become(const dp_process *p) {
    reset_signals();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (int i = 0; p->environment != NULL && p->environment[i] != NULL; i++) {
        const char *entry = p->environment[i], *equals = strchr(entry, '=');
        if (equals == NULL)
            unsetenv(entry);
        else
            putenv(strdup(entry));
    }
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (setpgid(0, 0) != 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || !redirect(STDOUT_FILENO, p->out) ||
        !redirect(STDERR_FILENO, p->err) || (p->folder != NULL && chdir(p->folder) != 0))
        _exit(CANNOT_RUN);
    /* exec takes pointers to char for history's sake and changes nothing. */
    union {
        const char *const *ours;
        char *const *theirs;
    } argv = {.ours = p->argv};
    execvp(p->argv[0], argv.theirs);
    _exit(CANNOT_RUN);
}

static void end_group(pid_t pid, int *status) {
    kill(-pid, SIGTERM);
    for (int i = 0; i < PATIENCE && waitpid(pid, status, WNOHANG) == 0; i++) nanosleep(&pause_between, NULL);
    if (kill(-pid, SIGKILL) == 0) waitpid(pid, status, 0);
}

static dflash_status start_failed(const dp_process *p, dflash_error *err) {
    return df_fail(err, DFLASH_ERR_IO, "process.start",
                   "%s cannot be run%s%s: %s. Install it, or check the folder's permissions.", p->argv[0],
                   p->folder != NULL ? " in " : "", p->folder != NULL ? p->folder : "", strerror(errno));
}

/* Waits for the program. How it ended must be known: a code that nobody set would be that of a success. */
static dflash_status await(const dp_process *process, pid_t pid, int *status, dflash_error *err) {
    struct timespec pause = {.tv_nsec = 100 * 1000}; /* doubled up to pause_between: short programs are heard soon */
    for (;;) {
        const pid_t ended = waitpid(pid, status, WNOHANG);
        if (ended == pid && (WIFEXITED(*status) || WIFSIGNALED(*status))) return DFLASH_OK;
        if (ended < 0 && errno != EINTR)
            return df_fail(err, DFLASH_ERR_IO, "process.wait",
                           "How %s ended cannot be known: %s. Nothing was decided; start again, with SIGCHLD neither "
                           "ignored nor handled by another part of this process.",
                           process->argv[0], strerror(errno));
        if (dp_interrupted()) {
            end_group(pid, status);
            return df_fail(err, DFLASH_ERR_IO, "process.interrupted",
                           "Interrupted by signal %d while %s ran. Nothing was decided; start again.", (int)interrupted,
                           process->argv[0]);
        }
        nanosleep(&pause, NULL);
        pause.tv_nsec = 2 * pause.tv_nsec < pause_between.tv_nsec ? 2 * pause.tv_nsec : pause_between.tv_nsec;
    }
}

dflash_status dp_process_run(const dp_process *process, int *code, dflash_error *err) {
    /* Where SIGCHLD is ignored, which a program inherits, the kernel forgets children as they end. */
    struct sigaction kept, remembered = {.sa_handler = SIG_DFL};
    int status = 0;
    fflush(NULL);
    sigemptyset(&remembered.sa_mask);
    sigaction(SIGCHLD, &remembered, &kept);
    const pid_t pid = fork();
    if (pid == 0) become(process);
    if (pid > 0) setpgid(pid, pid); /* whichever of the two is first */
    const dflash_status waited = pid < 0 ? start_failed(process, err) : await(process, pid, &status, err);
    sigaction(SIGCHLD, &kept, NULL);
    if (waited != DFLASH_OK) return waited;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    errno = ENOENT;
    return *code == CANNOT_RUN && strcmp(process->argv[0], "sh") != 0 ? start_failed(process, err) : DFLASH_OK;
}

/* ---- The folder ---- */

dflash_status dp_scratch_make(char path[DP_FOLDER_PATH], dflash_error *err) {
    const char *parent = getenv("TMPDIR");
    if (parent == NULL || parent[0] == '\0') parent = "/tmp";
    const bool fits = snprintf(path, DP_FOLDER_PATH, "%s/dflash-parity-XXXXXX", parent) < DP_FOLDER_PATH;
    if (fits && mkdtemp(path) != NULL) return DFLASH_OK;
    path[0] = '\0';
    return df_fail(err, DFLASH_ERR_IO, "scratch.folder",
                   "No scratch folder can be made under %s: %s. Point TMPDIR to a folder with room.", parent,
                   fits ? strerror(errno) : "the path is too long");
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *level) {
    (void)info;
    (void)kind;
    (void)level;
    return remove(path);
}

void dp_scratch_remove(const char *path) {
    enum { HANDLES = 16 };
    if (path[0] != '\0') nftw(path, remove_entry, HANDLES, FTW_DEPTH | FTW_PHYS);
}
