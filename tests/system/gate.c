/* gate.c: a library that is loaded before libc and holds fdatasync() back, or has it fail, so that a test can look at
 * what a broker does meanwhile.  Files whose path holds GATE_MATCH and ends with .log pass a gate in the directory
 * GATE_DIR: while `shut` is there a sync waits, and makes `waiting` to tell of it; while `broken` or `full` is there it
 * fails with EIO or ENOSPC.  Each that passes adds a byte to `passed`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_AGAIN_US = 1000 };

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

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (!has_gate(fd)) return real(fd);
    if (is_there("shut")) add_byte("waiting");
    while (is_there("shut")) usleep(LOOK_AGAIN_US);
    if (is_there("broken") || is_there("full")) {
        errno = is_there("full") ? ENOSPC : EIO;
        return -1;
    }
    add_byte("passed");
    return real(fd);
}
