/* gate.c: a library that is loaded before libc and holds fdatasync() back, or has it fail, so that a test can look at
 * what a broker does meanwhile.  Files whose path holds GATE_MATCH and ends with .log pass a gate in the directory
 * GATE_DIR: while `shut` is there a sync waits, and makes `waiting` to tell of it; while `broken` or `full` is there it
 * fails with EIO or ENOSPC.  Each that passes adds a byte to `passed`.  A gate that stays shut, since its test has
 * died, ends the broker after WAIT_SECONDS_MAX: nobody else would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_AGAIN_US = 1000, WAIT_SECONDS_MAX = 300 };

static bool is_there(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", getenv("GATE_DIR"), name);
    return access(path, F_OK) == 0;
}

static void add_byte(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", getenv("GATE_DIR"), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, "x", 1) != 1) abort();
    close(fd);
}

static bool has_gate(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 4) return false;
    path[n] = '\0';
    return strstr(path, getenv("GATE_MATCH")) && strcmp(path + n - 4, ".log") == 0;
}

static void wait_at_gate(void)
{
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    while (is_there("shut")) {
        usleep(LOOK_AGAIN_US);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - began.tv_sec <= WAIT_SECONDS_MAX) continue;
        fprintf(stderr, "gate.c: the gate has been shut for %d s: the test is over\n", WAIT_SECONDS_MAX);
        _exit(70);
    }
}

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (!has_gate(fd)) return real(fd);
    if (is_there("shut")) add_byte("waiting");
    wait_at_gate();
    if (is_there("broken") || is_there("full")) {
        errno = is_there("full") ? ENOSPC : EIO;
        return -1;
    }
    add_byte("passed");
    return real(fd);
}
