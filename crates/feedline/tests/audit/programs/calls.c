/* Calls each function that the library stands before, and prints what it returned: the same with and without it.
   Its argument is a folder with the file "data" of 100,000 bytes. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAY(call)                                                  \
    do {                                                           \
        errno = 0;                                                 \
        long result = (long)(call);                                \
        printf("%s: %ld, errno %d\n", #call, result, errno);       \
    } while (0)

static char buffer[200000];

static void *nothing(void *argument) { return argument; }

static void metadata(void) {
    struct stat about;
    struct statx more;
    int fd = open("data", O_RDONLY);
    SAY(stat("data", &about));
    SAY(lstat("data", &about));
    SAY(fstat(fd, &about));
    SAY(fstatat(AT_FDCWD, "data", &about, 0));
    SAY(fstatat(fd, "", &about, AT_EMPTY_PATH));
    SAY(statx(AT_FDCWD, "data", 0, STATX_ALL, &more));
    SAY(access("data", R_OK));
    SAY(faccessat(AT_FDCWD, "data", R_OK, 0));
    SAY(stat("absent", &about));
    SAY(access("absent", R_OK));
    SAY(about.st_size);
    SAY(close(fd));
}

static void folders(void) {
    struct dirent **list, *entry;
    int found = 0;
    DIR *folder = opendir(".");
    while ((entry = readdir(folder))) found += entry->d_name[0] != 0;
    SAY(found >= 3);
    SAY(closedir(folder));
    SAY(opendir("absent") == NULL);
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    folder = fdopendir(fd);
    SAY(closedir(folder));
    SAY(close(fd));
    SAY(scandir(".", &list, NULL, alphasort) >= 3);
}

static void reads(void) {
    struct iovec parts[2] = {{buffer, 100}, {buffer + 100, 200}};
    int fd = open("data", O_RDONLY);
    SAY(read(fd, buffer, 1000));
    SAY(lseek(fd, 500, SEEK_SET));
    SAY(readv(fd, parts, 2));
    SAY(pread(fd, buffer, 1000, 99500));
    SAY(preadv(fd, parts, 2, 10));
    SAY(preadv2(fd, parts, 2, -1, 0));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
    SAY(readahead(fd, 0, 4096));
    SAY(read(-1, buffer, 1));
    char *at = mmap(NULL, 100000, PROT_READ, MAP_SHARED, fd, 0);
    SAY(at[5]);
    SAY(madvise(at, 100000, MADV_RANDOM));
    SAY(munmap(at, 100000));
    SAY(mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
    SAY(close(fd));
    SAY(close(fd));
    SAY(open("absent", O_RDONLY));
}

static void streams(void) {
    char *line = NULL;
    size_t space = 0;
    FILE *file = fopen("data", "r");
    SAY(fread(buffer, 10, 30, file));
    SAY(fseek(file, 1000, SEEK_SET));
    SAY(fgets(buffer, 50, file) != NULL);
    SAY(strlen(buffer));
    SAY(getline(&line, &space, file));
    SAY(fseeko(file, -10, SEEK_END));
    SAY(fread_unlocked(buffer, 1, 100, file));
    rewind(file);
    SAY(ftell(file));
    file = freopen("data", "r", file);
    SAY(fread(buffer, 1, 7, file));
    SAY(fclose(file));
    SAY(fopen("absent", "r") == NULL);
    file = fopen("written", "w");
    SAY(fwrite(buffer, 1, 150000, file));
    SAY(fflush(file));
    SAY(fsync(fileno(file)));
    SAY(fdatasync(fileno(file)));
    SAY(fclose(file));
    file = fmemopen(buffer, 100, "r");
    SAY(fread(buffer + 1000, 1, 50, file));
    SAY(fclose(file));
    file = popen("echo text", "r");
    SAY(fread(buffer, 1, 50, file));
    SAY(pclose(file));
}

static void moves(void) {
    int from = open("data", O_RDONLY), to = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600), ends[2];
    off_t at = 100;
    SAY(sendfile(to, from, &at, 1000));
    SAY(sendfile(to, from, NULL, 1000));
    SAY(copy_file_range(from, NULL, to, NULL, 1000, 0));
    SAY(pipe(ends));
    SAY(splice(from, NULL, ends[1], NULL, 1000, 0));
    SAY(lseek(from, 0, SEEK_CUR));
    SAY(lseek(to, 0, SEEK_CUR));
    SAY(pwrite(to, buffer, 100, 0));
    SAY(write(to, buffer, 100));
    close(from), close(to), close(ends[0]), close(ends[1]);
    SAY(rename("copy", "other"));
    SAY(renameat(AT_FDCWD, "other", AT_FDCWD, "third"));
    SAY(unlink("third"));
    SAY(unlinkat(AT_FDCWD, "written", 0));
    SAY(unlink("absent"));
    SAY(remove("absent"));
}

static void waits(void) {
    int ends[2];
    struct timespec time = {0, 1000000};
    struct timeval span = {0, 1000};
    struct epoll_event event = {EPOLLIN, {.fd = 0}};
    struct iovec part = {buffer, 10};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    struct pollfd one = {ends[0], POLLIN, 0};
    fd_set set;
    FD_ZERO(&set);
    SAY(poll(&one, 1, 1));
    SAY(poll(&one, 1, 0));
    SAY(ppoll(&one, 1, &time, NULL));
    SAY(select(1, NULL, NULL, NULL, &span));
    SAY(pselect(1, &set, NULL, NULL, &time, NULL));
    int fd = epoll_create1(0);
    SAY(epoll_ctl(fd, EPOLL_CTL_ADD, ends[0], &event));
    SAY(epoll_wait(fd, &event, 1, 1));
    SAY(epoll_pwait(fd, &event, 1, 1, NULL));
    SAY(send(ends[1], buffer, 30, 0));
    SAY(recv(ends[0], buffer, 10, 0));
    SAY(recvfrom(ends[0], buffer, 10, 0, NULL, NULL));
    SAY(recvmsg(ends[0], &message, 0));
    close(fd), close(ends[0]), close(ends[1]);
}

static void processes(void) {
    pthread_t thread;
    int status = 0;
    SAY(pthread_create(&thread, NULL, nothing, NULL));
    SAY(pthread_join(thread, NULL));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(3);
    waitpid(child, &status, 0);
    SAY(WEXITSTATUS(status));
    child = _Fork();
    if (child == 0) _exit(4);
    waitpid(child, &status, 0);
    SAY(WEXITSTATUS(status));
    child = vfork();
    if (child == 0) {
        close(0);
        _exit(5);
    }
    waitpid(child, &status, 0);
    SAY(WEXITSTATUS(status));
    SAY(fcntl(0, F_GETFD) >= 0);
    SAY(syscall(SYS_getpid) == getpid());
    SAY(syscall(SYS_mmap, NULL, 4096L, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L) != -1);
    SAY(syscall(SYS_io_uring_setup, 0, NULL));
}

int main(int count, char **arguments) {
    if (count < 2 || chdir(arguments[1])) return 2;
    metadata();
    folders();
    reads();
    streams();
    moves();
    waits();
    processes();
    fflush(stdout);
    exit(0);
}
