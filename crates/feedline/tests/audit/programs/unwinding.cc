/* Threads that are cancelled inside of calls, and exceptions that pass through a call: destructors must run. */
#include <dirent.h>
#include <initializer_list>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

struct Guard {
    const char *name;
    ~Guard() { printf("destroyed %s\n", name), fflush(stdout); }
};

static int ends[2];

static void *reader(void *) {
    Guard guard{"reader"};
    char byte;
    read(ends[0], &byte, 1);
    return nullptr;
}

static void *poller(void *) {
    Guard guard{"poller"};
    struct pollfd one = {ends[0], POLLIN, 0};
    poll(&one, 1, -1);
    return nullptr;
}

static int throwing(const struct dirent *) { throw 7; }

int main() {
    pipe(ends);
    for (auto run : {reader, poller}) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, nullptr, run, nullptr);
        usleep(100000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("%d\n", result == PTHREAD_CANCELED);
    }
    try {
        struct dirent **list;
        Guard guard{"list"};
        scandir("/", &list, throwing, nullptr);
    } catch (int number) {
        printf("caught %d\n", number);
    }
    Guard guard{"main"};
    pthread_exit(nullptr);
}
