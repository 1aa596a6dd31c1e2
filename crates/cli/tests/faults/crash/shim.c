/*
 * Stands between a program and its files, for tests that break things: loaded with LD_PRELOAD, it
 * counts the calls that reach files of one folder and strikes one of them. The struck call fails, is
 * done by half, or is the last thing that the process does. It can also keep a log of all that is
 * written, from which a test builds what a disk could hold after a power loss.
 *
 * Only files below SHIM_FOLDER are watched; their paths must be given in full. SHIM_CONTROL names the
 * file through which the test says what to do, also while the program runs; SHIM_LOG the log, if one
 * is wanted. `shim.rs` is the other side and has the same numbers.
 *
 * What SQLite does with the `-shm` file through memory is not seen. It need not be: that file is
 * nothing that lasts, SQLite makes it anew when the first connection opens.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { WRITE = 1, TRUNCATE = 2, SYNC = 4, REMOVE = 8, RENAME = 16, CREATE = 32, READ = 64, OPEN = 128 };
enum act { NOTHING, KILL_BEFORE, KILL_AFTER, KILL_HALF, FAIL, FULL, DENIED };

/* Shared with the test. */
struct control {
    volatile int64_t kinds;     /* which calls are counted */
    volatile int64_t at;        /* the one that is struck, from 1 */
    volatile int64_t act;       /* what happens to it */
    volatile int64_t lasting;   /* whether all later ones are struck too */
    volatile int64_t count;     /* how many were counted */
    volatile int64_t clock;     /* seconds that the wall clock is ahead */
    volatile int64_t read_only; /* whether the folder is on a read-only disk */
};

static struct control nobody, *control = &nobody;
static const char *folder;
static size_t folder_length;
static int log_fd = -1;
/* One at a time, so that count, log and effect are in the same order. */
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
#define MOST_FDS 4096
static char is_watched[MOST_FDS];
static char is_logged[MOST_FDS];

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SHIM_CONTROL"), *log_path = getenv("SHIM_LOG");
    const char *given = getenv("SHIM_FOLDER");
    int fd = path ? REAL(open)(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0 || !given) return;
    void *shared = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REAL(close)(fd);
    if (shared == MAP_FAILED) return;
    if (log_path) log_fd = REAL(open)(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    folder_length = strlen(given);
    folder = given;
    control = shared;
}

/* The name below the folder, empty for the folder itself, NULL for what is elsewhere. */
static const char *name_of(const char *path) {
    if (!folder || !path || strncmp(path, folder, folder_length) != 0) return NULL;
    if (path[folder_length] == '\0') return path + folder_length;
    return path[folder_length] == '/' ? path + folder_length + 1 : NULL;
}

static int watched(int fd) { return fd >= 0 && fd < MOST_FDS && is_watched[fd]; }

/* Which call follows is told by the letter; its bytes are those written, or names. */
static void note(char what, int fd, int64_t at, const void *bytes, size_t length) {
    if (log_fd < 0) return;
    struct __attribute__((packed)) { char what; int32_t fd; int64_t at; uint32_t length; } head = {what, fd, at, (uint32_t)length};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)bytes, length}};
    if (REAL(writev)(log_fd, parts, 2) < 0) abort();
}

static void note_fd(char what, int fd, int64_t at, const void *bytes, size_t length) {
    if (is_logged[fd]) note(what, fd, at, bytes, length);
}

/* Counts a call and says what happens to it. */
static enum act strike(enum kind kind) {
    if (!(control->kinds & kind)) return NOTHING;
    int64_t now = ++control->count, at = control->at;
    if (at == 0 || now < at) return NOTHING;
    enum act act = (enum act)control->act;
    /* A disk that is full takes the half of a write first, and nothing the next time. */
    int second = act == FULL && now == at + 1;
    if (now > at && !second && !control->lasting) return NOTHING;
    return act;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Whether the call fails; errno is then set. */
static int fails(enum act act) {
    if (act == KILL_BEFORE || act == KILL_HALF) die();
    if (act != FAIL && act != FULL && act != DENIED) return 0;
    errno = act == FAIL ? EIO : act == FULL ? ENOSPC : EACCES;
    return 1;
}

/* Lets the call go through when it does not fail; dies after it when it shall. */
#define DO(kind, call, noted)                        \
    do {                                             \
        pthread_mutex_lock(&one);                    \
        enum act act = strike(kind);                 \
        __typeof__(call) done = -1;                  \
        if (!fails(act) && (done = (call)) >= 0) {   \
            int kept = errno;                        \
            noted;                                   \
            errno = kept;                            \
        }                                            \
        if (act == KILL_AFTER) die();                \
        pthread_mutex_unlock(&one);                  \
        return done;                                 \
    } while (0)

static ssize_t put(int fd, const void *bytes, size_t length, off64_t at) {
    pthread_mutex_lock(&one);
    enum act act = strike(WRITE);
    size_t wanted = length;
    if ((act == KILL_HALF || (act == FULL && control->count == control->at)) && length > 1) wanted = length / 2;
    else if (fails(act)) {
        pthread_mutex_unlock(&one);
        return -1;
    }
    ssize_t done = REAL(pwrite64)(fd, bytes, wanted, at);
    if (done > 0) note_fd('w', fd, at, bytes, (size_t)done);
    if (act == KILL_AFTER || act == KILL_HALF) die();
    pthread_mutex_unlock(&one);
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
    return watched(fd) ? put(fd, bytes, length, at) : REAL(pwrite64)(fd, bytes, length, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    return pwrite64(fd, bytes, length, at);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    if (!watched(fd)) return REAL(write)(fd, bytes, length);
    off64_t at = lseek64(fd, 0, SEEK_CUR);
    ssize_t done = put(fd, bytes, length, at);
    if (done > 0) lseek64(fd, at + done, SEEK_SET);
    return done;
}

ssize_t pread64(int fd, void *bytes, size_t length, off64_t at) {
    if (!watched(fd)) return REAL(pread64)(fd, bytes, length, at);
    DO(READ, REAL(pread64)(fd, bytes, length, at), (void)0);
}

ssize_t pread(int fd, void *bytes, size_t length, off_t at) { return pread64(fd, bytes, length, at); }

ssize_t read(int fd, void *bytes, size_t length) {
    if (!watched(fd)) return REAL(read)(fd, bytes, length);
    DO(READ, REAL(read)(fd, bytes, length), (void)0);
}

int ftruncate64(int fd, off64_t length) {
    if (!watched(fd)) return REAL(ftruncate64)(fd, length);
    DO(TRUNCATE, REAL(ftruncate64)(fd, length), note_fd('t', fd, length, NULL, 0));
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

/* The disk itself is not asked: what a test reads comes from the page cache, or from the log. */
int fsync(int fd) {
    if (!watched(fd)) return REAL(fsync)(fd);
    DO(SYNC, 0, note_fd('s', fd, 0, NULL, 0));
}

int fdatasync(int fd) {
    if (!watched(fd)) return REAL(fdatasync)(fd);
    DO(SYNC, 0, note_fd('s', fd, 0, NULL, 0));
}

int unlink(const char *path) {
    const char *name = name_of(path);
    if (!name) return REAL(unlink)(path);
    if (control->read_only) return errno = EROFS, -1;
    DO(REMOVE, REAL(unlink)(path), note('u', -1, 0, name, strlen(name)));
}

int rename(const char *from, const char *to) {
    const char *old = name_of(from), *new = name_of(to);
    if (!old || !new) return REAL(rename)(from, to);
    if (control->read_only) return errno = EROFS, -1;
    DO(RENAME, REAL(rename)(from, to), (note('m', -1, 0, old, strlen(old)), note('n', -1, 0, new, strlen(new))));
}

static int opened(const char *name, int fd, int is_new, int cuts) {
    size_t length = strlen(name);
    if (fd >= MOST_FDS) return fd;
    is_watched[fd] = 1;
    is_logged[fd] = length < 4 || strcmp(name + length - 4, "-shm") != 0;
    if (is_logged[fd]) note(is_new ? 'c' : 'o', fd, cuts, name, length);
    return fd;
}

static int open_watched(const char *path, const char *name, int flags, mode_t mode) {
    struct stat found;
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
    if (control->read_only && writes) return errno = EROFS, -1;
    int is_new = (flags & O_CREAT) && stat(path, &found) != 0;
    DO(is_new ? CREATE | OPEN : OPEN, REAL(open64)(path, flags, mode), opened(name, done, is_new, (flags & O_TRUNC) != 0));
}

static int open_any(const char *path, int flags, mode_t mode) {
    const char *name = name_of(path);
    return name ? open_watched(path, name, flags, mode) : REAL(open64)(path, flags, mode);
}

#define MODE(last)                                                    \
    mode_t mode = 0;                                                  \
    if (last & (O_CREAT | O_TMPFILE)) {                               \
        va_list rest;                                                 \
        va_start(rest, last);                                         \
        mode = va_arg(rest, mode_t);                                  \
        va_end(rest);                                                 \
    }

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return open_any(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    MODE(flags)
    return open_any(path, flags, mode);
}

int close(int fd) {
    if (!watched(fd)) return REAL(close)(fd);
    pthread_mutex_lock(&one);
    is_watched[fd] = 0;
    note_fd('x', fd, 0, NULL, 0);
    int done = REAL(close)(fd);
    pthread_mutex_unlock(&one);
    return done;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = REAL(clock_gettime)(clock, now);
    if (done == 0 && clock == CLOCK_REALTIME) now->tv_sec += control->clock;
    return done;
}
