/* A library for LD_PRELOAD that opens a file whenever the time is read, and tells a time in the future. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    FILE *file = fopen("/etc/hostname", "r");
    if (file) fclose(file);
    int result = syscall(SYS_clock_gettime, clock, time);
    time->tv_sec += 1000000000;
    return result;
}
