/* Calls with addresses that are wrong, and prints what they return: EFAULT, as the kernel says. Programs find out in this
   way what they can read. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SAY(call)                                            \
    do {                                                     \
        errno = 0;                                           \
        long result = (long)(call);                          \
        printf("%s: %ld, errno %d\n", #call, result, errno); \
    } while (0)
#define BAD ((void *)8)

int main(void) {
    int fd = open("/proc/self/exe", O_RDONLY), ends[2];
    struct stat about;
    struct statx more;
    struct msghdr message = {.msg_iov = BAD, .msg_iovlen = 2};
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    SAY(open(BAD, O_RDONLY));
    SAY(openat(AT_FDCWD, BAD, O_RDONLY));
    SAY(creat(BAD, 0600));
    SAY(stat(BAD, &about));
    SAY(lstat(BAD, &about));
    SAY(fstatat(fd, BAD, &about, 0));
    SAY(stat("/", BAD));
    SAY(fstat(fd, BAD));
    SAY(fstatat(fd, BAD, &about, AT_EMPTY_PATH));
    SAY(statx(AT_FDCWD, BAD, 0, STATX_ALL, &more));
    SAY(statx(AT_FDCWD, "/", 0, STATX_ALL, BAD));
    SAY(access(BAD, R_OK));
    SAY(faccessat(AT_FDCWD, BAD, R_OK, 0));
    SAY(rename(BAD, "x"));
    SAY(rename("/nonexistent", BAD));
    SAY(renameat(AT_FDCWD, BAD, AT_FDCWD, BAD));
    SAY(unlink(BAD));
    SAY(unlinkat(AT_FDCWD, BAD, 0));
    SAY(remove(BAD));
    SAY(fopen(BAD, "r") == NULL);
    SAY(read(fd, BAD, 10));
    SAY(pread(fd, BAD, 10, 0));
    SAY(readv(fd, BAD, 3));
    SAY(preadv(fd, BAD, 3, 0));
    SAY(writev(1, BAD, 3));
    SAY(poll(BAD, 2, 0));
    SAY(epoll_wait(epoll_create1(0), BAD, 1, 0));
    SAY(recvmsg(ends[0], BAD, MSG_DONTWAIT));
    SAY(recvmsg(ends[0], &message, MSG_DONTWAIT));
    SAY(sendfile(ends[1], fd, BAD, 10));
    SAY(copy_file_range(fd, BAD, fd, NULL, 10, 0));
    SAY(execve(BAD, NULL, NULL));
    SAY(execv(BAD, NULL));
    SAY(write(ends[1], BAD, 1));
    return 0;
}
