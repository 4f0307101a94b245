/* Reads a byte of a file in three threads, again and again, for 100 seconds. */
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static int fd;

static void *run(void *argument) {
    char byte;
    for (;;) pread(fd, &byte, 1, 0);
    return argument;
}

int main(int count, char **paths) {
    pthread_t thread;
    fd = open(paths[count - 1], O_RDONLY);
    alarm(100);
    pthread_create(&thread, NULL, run, NULL);
    pthread_create(&thread, NULL, run, NULL);
    run(NULL);
}
