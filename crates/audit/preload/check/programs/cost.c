/* Prints nanoseconds of CPU time per pread of 4 KiB and per open and close: the best of 9 rounds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { READS = 20000, OPENS = 5000, ROUNDS = 9 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **arguments) {
    static char block[4096];
    double best[3] = {1e18, 1e18, 1e18};
    for (int round = 0; round < ROUNDS; round++) {
        int fd = open(arguments[1], O_RDONLY);
        double start = now();
        for (int number = 0; number < READS; number++)
            if (pread(fd, block, sizeof block, 0) < 0) return 1;
        double reads = (now() - start) / READS;
        struct stat about;
        start = now();
        for (int number = 0; number < READS; number++)
            if (stat(arguments[1], &about)) return 1;
        double stats = (now() - start) / READS;
        close(fd);
        start = now();
        for (int number = 0; number < OPENS; number++)
            if (close(open(arguments[1], O_RDONLY))) return 1;
        double opens = (now() - start) / OPENS;
        best[0] = reads < best[0] ? reads : best[0];
        best[1] = opens < best[1] ? opens : best[1];
        best[2] = stats < best[2] ? stats : best[2];
    }
    printf("%.0f %.0f %.0f\n", best[0], best[1], best[2]);
    return 0;
}
