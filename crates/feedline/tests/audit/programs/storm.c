/* Threads with the smallest stacks that use files, threads that fork, vfork and spawn, and a timer whose signal handler uses
   files, all at once. Prints how many results were wrong. Its argument is a file of at least 64 bytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 3000, FORKS = 150, READERS = 6, FORKERS = 2, ERROR = 77 };

static const char *path;
static volatile long handled, wrong;
static char signal_stack[16384];

static void on_alarm(int number) {
    int before = errno, fd = open(path, O_RDONLY);
    char bytes[8];
    if (fd >= 0) read(fd, bytes, sizeof bytes), close(fd);
    handled += number != 0;
    errno = before;
}

static void *use_files(void *argument) {
    char bytes[64];
    for (int number = 0; number < FILES; number++) {
        int fd = open(path, O_RDONLY), copy;
        errno = ERROR;
        wrong += fd < 0 || pread(fd, bytes, sizeof bytes, 0) != sizeof bytes || errno != ERROR;
        copy = dup(fd);
        wrong += copy < 0 || close(copy) || close(fd);
    }
    return argument;
}

static pid_t start(int number) {
    char *arguments[] = {"true", NULL};
    pid_t child;
    switch (number % 3) {
    case 0:
        child = fork();
        if (child == 0) use_files(NULL), _exit(0);
        return child;
    case 1:
        child = vfork();
        if (child == 0) {
            execve(number % 2 ? "/nonexistent" : "/bin/true", arguments, NULL);
            _exit(0);
        }
        return child;
    default:
        return posix_spawn(&child, "/bin/true", NULL, NULL, arguments, number % 2 ? environ : NULL) ? -1 : child;
    }
}

static void *use_processes(void *argument) {
    for (int number = 0; number < FORKS; number++) {
        int status = 0;
        pid_t child = start(number);
        while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        wrong += child < 0 || status;
    }
    return argument;
}

int main(int count, char **arguments) {
    stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART | SA_ONSTACK};
    struct itimerval timer = {{0, 700}, {0, 700}}, none = {{0, 0}, {0, 0}};
    pthread_t threads[READERS + FORKERS];
    pthread_attr_t small;
    path = arguments[count - 1];
    sigaltstack(&stack, NULL);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (int number = 0; number < READERS + FORKERS; number++) {
        int reads = number < READERS;
        pthread_create(&threads[number], reads ? &small : NULL, reads ? use_files : use_processes, NULL);
    }
    for (int number = 0; number < READERS + FORKERS; number++) pthread_join(threads[number], NULL);
    setitimer(ITIMER_REAL, &none, NULL);
    printf("%ld wrong, %s\n", wrong, handled ? "with signals" : "without signals");
    return wrong != 0;
}
